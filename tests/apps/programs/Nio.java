import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;

/** An echo server on a selector, and clients that check every byte: java Nio server|channels|blocking|self PORT. */
public class Nio {
    static final InetAddress HOST = InetAddress.getLoopbackAddress();

    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        switch (words[0]) {
            case "server" -> server(port);
            case "channels" -> channels(port);
            case "blocking" -> blocking(port);
            case "self" -> self();
            default -> throw new IllegalArgumentException(words[0]);
        }
        System.out.println("ok");
        System.exit(0);
    }

    static void server(int port) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(HOST, port), 200);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel accepted = listener.accept();
                    if (accepted != null) {
                        accepted.configureBlocking(false);
                        accepted.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(32768));
                    }
                } else {
                    echo(key);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    /** Reads while there is room and writes while there is data; ends with the peer. */
    static void echo(SelectionKey key) throws Exception {
        SocketChannel channel = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        int read = key.isReadable() ? channel.read(buffer) : 0;
        buffer.flip();
        channel.write(buffer);
        boolean left = buffer.hasRemaining();
        buffer.compact();
        if (read < 0 && !left) {
            channel.close();
            return;
        }
        int wanted = (buffer.hasRemaining() && read >= 0 ? SelectionKey.OP_READ : 0) | (left ? SelectionKey.OP_WRITE : 0);
        key.interestOps(wanted);
    }

    /** What one non-blocking client still has to send and to compare. */
    static class Talk {
        final byte[] data;
        final ByteBuffer out;
        int received = 0;

        Talk(int number) {
            data = new byte[number * 9973 + 1];
            new Random(number).nextBytes(data);
            out = ByteBuffer.wrap(data);
        }
    }

    static void channels(int port) throws Exception {
        Selector selector = Selector.open();
        int open = 40;
        for (int number = 0; number < open; number++) {
            SocketChannel channel = SocketChannel.open();
            channel.configureBlocking(false);
            channel.register(selector, SelectionKey.OP_CONNECT, new Talk(number));
            channel.connect(new InetSocketAddress(HOST, port));
        }
        ByteBuffer in = ByteBuffer.allocate(10000);
        while (open > 0) {
            if (selector.select(20000) == 0) throw new IllegalStateException("nothing happened for 20 s, " + open + " still open");
            for (SelectionKey key : selector.selectedKeys()) {
                SocketChannel channel = (SocketChannel) key.channel();
                Talk talk = (Talk) key.attachment();
                if (key.isConnectable()) {
                    channel.finishConnect();
                    key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                    continue;
                }
                if (key.isWritable()) {
                    channel.write(talk.out);
                    if (!talk.out.hasRemaining()) {
                        key.interestOps(SelectionKey.OP_READ);
                        channel.shutdownOutput();
                    }
                }
                if (key.isReadable()) {
                    in.clear();
                    int read = channel.read(in);
                    if (read < 0) {
                        if (talk.received != talk.data.length) throw new IllegalStateException("end after " + talk.received + " of " + talk.data.length);
                        channel.close();
                        open--;
                        continue;
                    }
                    if (!Arrays.equals(in.array(), 0, read, talk.data, talk.received, talk.received + read)) throw new IllegalStateException("other bytes came back");
                    talk.received += read;
                }
            }
            selector.selectedKeys().clear();
        }
    }

    static void blocking(int port) throws Exception {
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        Thread[] threads = new Thread[20];
        for (int n = 0; n < threads.length; n++) {
            int number = n;
            threads[n] = new Thread(() -> {
                try {
                    one(port, number);
                } catch (Throwable error) {
                    wrong.set(error);
                }
            });
            threads[n].start();
        }
        for (Thread thread : threads) thread.join();
        if (wrong.get() != null) throw new IllegalStateException(wrong.get());
    }

    static void one(int port, int number) throws Exception {
        try (Socket socket = new Socket(HOST, port)) {
            socket.setTcpNoDelay(true);
            InputStream in = socket.getInputStream();
            Random chance = new Random(number);
            for (int turn = 0; turn < 50; turn++) {
                byte[] data = new byte[1 + chance.nextInt(20000)];
                chance.nextBytes(data);
                socket.getOutputStream().write(data);
                if (!Arrays.equals(in.readNBytes(data.length), data)) throw new IllegalStateException("other bytes came back");
            }
            socket.setSoTimeout(50);
            try {
                in.read();
                throw new IllegalStateException("bytes out of nowhere");
            } catch (SocketTimeoutException expected) {
                socket.setSoTimeout(20000);
            }
            socket.shutdownOutput();
            if (in.read() != -1) throw new IllegalStateException("bytes after the end");
        }
    }

    static void self() throws Exception {
        try (ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress(HOST, 0));
             SocketChannel near = SocketChannel.open(listener.getLocalAddress());
             SocketChannel far = listener.accept()) {
            ByteBuffer buffer = ByteBuffer.allocate(8);
            for (long turn = 0; turn < 1000; turn++) {
                buffer.clear().putLong(turn).flip();
                (turn % 2 == 0 ? near : far).write(buffer);
                buffer.clear();
                while (buffer.hasRemaining()) (turn % 2 == 0 ? far : near).read(buffer);
                if (buffer.flip().getLong() != turn) throw new IllegalStateException("turn " + turn + " differs");
            }
        }
    }
}
