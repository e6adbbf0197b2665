// The other end of node_server.js, every answer checked. Usage: node node_client.js PORT requests|upload|raw; prints "ok".
'use strict';
const crypto = require('crypto');
const http = require('http');
const net = require('net');
const { Readable } = require('stream');

const port = Number(process.argv[2]);
const agent = new http.Agent({ keepAlive: true, maxSockets: 20 });
const sha = (data) => crypto.createHash('sha256').update(data).digest('hex');

function ask(options, body) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host: '127.0.0.1', port, agent, timeout: 20000, ...options }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => resolve(Buffer.concat(parts)));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.on('timeout', () => request.destroy(new Error('no answer for 20 s')));
    if (body) body.pipe(request); else request.end();
  });
}

async function requests() {
  let next = 0;
  await Promise.all(Array.from({ length: 20 }, async () => {
    while (next < 2000) {
      const number = next++;
      const size = (number * 977) % 40000;
      const got = await ask({ path: `/${size}/${number % 10}` });
      if (!got.equals(Buffer.alloc(size, String(number % 10)))) throw new Error(`answer ${number} differs`);
    }
  }));
}

async function upload() {
  for (let turn = 0; turn < 10; turn++) {
    const data = crypto.randomBytes(5000000);
    const pieces = [];
    for (let at = 0; at < data.length; at += 33333) pieces.push(data.subarray(at, at + 33333));
    const got = await ask({ method: 'POST', path: '/' }, Readable.from(pieces));
    if (got.toString() !== sha(data)) throw new Error(`upload ${turn}: ${got}`);
  }
}

function raw(number) {
  return new Promise((resolve, reject) => {
    const data = Buffer.concat([Buffer.from('RAW\n'), crypto.randomBytes(number * 20011)]);
    const parts = [];
    const socket = net.connect({ host: '127.0.0.1', port, allowHalfOpen: true }, () => socket.end(data));
    socket.on('data', (part) => parts.push(part));
    socket.on('end', () => Buffer.concat(parts).toString() === sha(data) ? resolve() : reject(new Error(`raw ${number} differs`)));
    socket.on('error', reject);
  });
}

const all = { requests, upload, raw: () => Promise.all(Array.from({ length: 50 }, (_, n) => raw(n))) };
all[process.argv[3]]().then(() => { console.log('ok'); process.exit(0); }, (error) => { console.error(error); process.exit(1); });
