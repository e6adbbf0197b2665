// Answers each HTTP request with the SHA-256 of its body, or a body of a wanted size; on PORT+0 only. A connection that starts with
// "RAW\n" instead of HTTP gets, after its half-close, the SHA-256 of what it sent. Usage: node node_server.js PORT
'use strict';
const crypto = require('crypto');
const http = require('http');
const net = require('net');

const web = http.createServer((request, response) => {
  if (request.method === 'GET') {
    const [, size, seed] = request.url.split('/').map(Number);
    response.end(Buffer.alloc(size, String(seed)));
    return;
  }
  const hash = crypto.createHash('sha256');
  request.on('data', (part) => hash.update(part));
  request.on('end', () => response.end(hash.digest('hex')));
});
web.keepAliveTimeout = 30000;

net.createServer({ allowHalfOpen: true }, (socket) => {
  socket.once('data', (first) => {
    if (first.toString('latin1', 0, 4) !== 'RAW\n') {
      socket.unshift(first);
      web.emit('connection', socket);
      return;
    }
    const hash = crypto.createHash('sha256').update(first);
    socket.on('data', (part) => hash.update(part));
    socket.on('end', () => socket.end(hash.digest('hex')));
  });
}).listen({ host: '127.0.0.1', port: Number(process.argv[2]), backlog: 200 });
