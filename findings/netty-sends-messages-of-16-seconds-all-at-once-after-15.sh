#!/usr/bin/env bash
# Netty's traffic shaping limits the bytes that a connection sends in a second. No message waits for more than `maxTime`,
# which is 15 seconds if nothing else is said, and one whose bytes alone need longer is not counted for those behind it:
# all of them are due after the same 15 seconds. So messages of 14 seconds' bytes go out one after the other, and those
# of 16 seconds all at once: 20 of them at 21 times the limit. Who sends large files has to cut them.
. "$(dirname "$0")/setup"
with_java io.netty/netty-handler
cat >Finding.java <<'JAVA'
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.traffic.ChannelTrafficShapingHandler;
import java.util.concurrent.atomic.AtomicLong;

class Finding {
    static final int LIMIT = 10_000;

    /** The bytes that have come after 20 seconds of 20 messages with this many seconds' bytes. */
    static long received(MultiThreadIoEventLoopGroup group, int seconds) throws InterruptedException {
        AtomicLong received = new AtomicLong();
        Channel server = new ServerBootstrap().group(group).channel(NioServerSocketChannel.class)
            .childHandler(new SimpleChannelInboundHandler<ByteBuf>() {
                protected void channelRead0(ChannelHandlerContext context, ByteBuf bytes) {
                    received.addAndGet(bytes.readableBytes());
                }
            }).bind("127.0.0.1", 0).sync().channel();
        Channel client = new Bootstrap().group(group).channel(NioSocketChannel.class)
            .handler(new ChannelTrafficShapingHandler(LIMIT, 0)).connect(server.localAddress()).sync().channel();
        for (int message = 0; message < 20; message++)
            client.writeAndFlush(Unpooled.wrappedBuffer(new byte[seconds * LIMIT]));
        Thread.sleep(20_000);
        client.close();
        server.close();
        int kilobytes = seconds * LIMIT / 1000;
        System.out.printf("10 kB/s, 20 messages of %d kB: %d kB after 20 s%n", kilobytes, received.get() / 1000);
        return received.get();
    }

    public static void main(String[] args) throws InterruptedException {
        MultiThreadIoEventLoopGroup group = new MultiThreadIoEventLoopGroup(2, NioIoHandler.newFactory());
        long small = received(group, 1), medium = received(group, 14), large = received(group, 16);
        group.shutdownGracefully();
        assert small < 25 * LIMIT && medium < 30 * LIMIT && large == 320 * LIMIT;
    }
}
JAVA
java -ea Finding.java
