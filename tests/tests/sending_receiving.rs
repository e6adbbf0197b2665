//! Sending and receiving: every call that moves bytes, with every flag, on lanes and off.

use rsock_tests::scripts;

scripts! {
    bytes_go_both_ways: "
        connect
        warm
        a send s 100
        b recv s 1000
        b send s 5
        a recv s 5
        a write s 70000
        b recvall s 70000
        a read s 0
        b send s 0
        a await s 0
        a writev s 10,0,20,1
        b await s 31
        b readv s 5,0,30,7
        b sendmsg s 7,9
        a await s 16
        a recvmsg s 3,3,3,3,3,3
        b sendto s 12
        a recvfrom s 5
        a recvfrom s 50
    ";
    empty_socket_gives_eagain: "
        connect
        warm
        a fcntl s SETFL NONBLOCK
        a recv s 10
        a read s 10
        a readv s 10,10
        a recvmsg s 10
        a recvfrom s 10
        a recv s 10 DONTWAIT
        b recv s 10 DONTWAIT
        b recvmsg s 10 DONTWAIT
        b recv s 10 DONTWAIT|PEEK
        b recv s 10 DONTWAIT|WAITALL
        b recv s 0 DONTWAIT
        b send s 3
        a await s 3
        a recv s 10
        a recv s 10
    ";
    partial_reads_keep_the_rest: "
        connect
        warm
        a send s 10
        b await s 10
        b recv s 3
        b ioctl s FIONREAD
        b recv s 3
        a send s 5
        b await s 9
        b read s 1
        b recv s 100
        b await s 0
    ";
    peek_takes_nothing: "
        connect
        warm
        a send s 20
        b await s 20
        b recv s 5 PEEK
        b recv s 50 PEEK
        b recvmsg s 3,4 PEEK
        b ioctl s FIONREAD
        b recv s 8
        b recv s 50 PEEK
        b recv s 12 PEEK|WAITALL
        b recv s 50
        b recv s 5 PEEK|DONTWAIT
        a &p send s 4
        a join p
        b recv s 4 PEEK
        b recv s 4
    ";
    peek_waits: "
        connect
        warm
        b &r recv s 10 PEEK
        b blocked r
        a send s 4
        b join r
        b &r recv s 10 PEEK|WAITALL
        sleep 30
        b running r
        a send s 6
        b join r
        b recv s 100
        b &r recv s 10 PEEK
        b blocked r
        a shutdown s WR
        b join r
    ";
    waitall_waits_for_all: "
        connect
        warm
        b &r recv s 10 WAITALL
        b blocked r
        a send s 4
        sleep 30
        b running r
        a send s 6
        b join r
        b &r recvmsg s 5,5,5 WAITALL
        b blocked r
        a send s 14
        sleep 30
        b running r
        a send s 5
        b join r
        b recv s 10
        b &r recv s 300000 WAITALL
        b blocked r
        a sendall s 300000
        b join r
    ";
    waitall_ends_short_at_the_end: "
        connect
        warm
        b &r recv s 10 WAITALL
        b blocked r
        a send s 4
        a shutdown s WR
        b join r
        b recv s 10 WAITALL
    ";
    waitall_larger_than_any_buffer: "
        connect
        warm
        b &r recvall s 3000000 a 3000000 WAITALL
        a sendall s 3000000 1000000
        b join r
        b &r recvall s 3000000 a 3000000 WAITALL
        a sendall s 3000000 100
        b join r
    ";
    trunc_throws_away: "
        connect
        warm
        a send s 30
        b await s 30
        b recv s 10 TRUNC
        b ioctl s FIONREAD
        b recv s 5
        b recv s 5 TRUNC|PEEK
        b recvmsg s 5 TRUNC
        b recv s 100 TRUNC
        b recv s 100 TRUNC|DONTWAIT
    ";
    blocked_receivers_are_woken: "
        connect
        warm
        b &r recv s 10
        b blocked r
        a send s 4
        b join r
        b &r read s 10
        b blocked r
        a send s 4
        b join r
        b &r readv s 2,10
        b blocked r
        a send s 4
        b join r
        b &r recvmsg s 2,10
        b blocked r
        a send s 4
        b join r
        b &r recvfrom s 10
        b blocked r
        a shutdown s WR
        b join r
    ";
    nonblocking_does_not_stick_to_the_call: "
        connect
        warm
        a recv s 1 DONTWAIT
        a &r recv s 1
        a blocked r
        b send s 1
        a join r
        a ioctl s FIONBIO 1
        a recv s 1
        a fcntl s GETFL
        a ioctl s FIONBIO 0
        a fcntl s GETFL
        a &r recv s 1
        a blocked r
        b send s 1
        a join r
    ";
    more_is_not_for_ever: "
        connect
        warm
        a send s 10 MORE
        a send s 10
        b await s 20
        b recv s 100
        a send s 10 MORE
        b await s 10
        b recv s 100
        a sendmsg s 4,4 MORE
        a sendmsg s 4,4
        b await s 16
        b recv s 100
    ";
    cork_and_uncork: "
        connect
        warm
        a setsockopt s TCP_CORK 1
        a send s 10
        a send s 10
        a getsockopt s TCP_CORK
        a setsockopt s TCP_CORK 0
        b await s 20
        b recv s 100
        a setsockopt s TCP_CORK 1
        a send s 10
        a setsockopt s TCP_NODELAY 1
        b await s 10
        b recv s 100
        a getsockopt s TCP_NODELAY
        a getsockopt s TCP_CORK
        a send s 10
        a shutdown s WR
        b recvall s end
    ";
    several_messages_in_a_call: "
        connect
        warm
        a sendmmsg s 3/4,5/6
        b await s 18
        b recvmmsg s 2/3,3/100
        b recvmmsg s 2/3 DONTWAIT
        a send s 10
        b await s 10
        b recvmmsg s 4/4/4/4 DONTWAIT
        a send s 10
        b await s 10
        b recvmmsg s 4/10 WAITFORONE
        b &r recvmmsg s 4/4
        b blocked r
        a send s 4
        a send s 4
        b join r
    ";
    full_buffers_and_back: "
        connect
        warm
        a fill s
        a poll s:OUT 0
        b drain s a $filled
        a poll s:OUT 5000
        a send s 10 DONTWAIT
        b recvall s 10 a
        a fill s 100
        b drain s a $filled
        b fill s 70000
        a fill s 70000
        b poll s:OUT 0
        a poll s:OUT 0
    ";
    blocked_sender_is_woken: "
        connect
        warm
        a fill s
        a &w sendall s 8000000
        a blocked w
        b drain s a $filled
        b recvall s 8000000 a
        a join w
    ";
    a_blocking_send_takes_everything: "
        connect
        warm
        a &w send s 8000000
        a blocked w
        b recvall s 8000000 a
        a join w
        a &w writev s 1000000,10,2000000
        b recvall s 3000010 a
        a join w
        a &w sendmsg s 1000000,10,2000000
        b recvall s 3000010 a 1000
        a join w
    ";
    shutdown_ends_a_blocked_send: "
        connect
        warm
        a &w push s 100000000
        a blocked w
        a shutdown s RDWR
        a join w
        a send s 10 NOSIGNAL
        b drain s a $pushed
        b recv s 10
    ";
    shutdown_ends_a_blocked_receive: "
        connect
        warm
        b &r recv s 10
        b blocked r
        b shutdown s RD
        b join r
        b recv s 10
        a &r recv s 10 WAITALL
        a blocked r
        a shutdown s RDWR
        a join r
    ";
    peer_close_ends_a_blocked_send: "
        connect
        warm
        a &w push s 100000000
        a blocked w
        b close s
        a join w
        a send s 10 NOSIGNAL
    ";
    both_directions_at_once: "
        connect
        warm
        a &w sendall s 5000000 30000
        a &r recvall s 5000000 b 7000
        b &w sendall s 5000000 1000
        b &r recvall s 5000000 a
        a join w
        a join r
        b join w
        b join r
    ";
    many_senders_and_receivers: "
        connect
        warm
        a &w pushers s 4 700000
        b &r pullers s 4
        a join w
        a shutdown s WR
        b join r
    ";
    small_writes_keep_their_order: "
        connect
        warm
        b &r recvall s 100000 a 13
        a sendall s 100000 7
        b join r
        a &r recvall s 50000 b 1
        b sendall s 50000 3
        a join r
    ";
    tiny_buffers_lose_no_wakeup: "
        connect
        a setsockopt s SO_SNDBUF 8192
        b setsockopt s SO_RCVBUF 16384
        warm
        b &r recvall s 500000 a 900
        a sendall s 500000 1111
        b join r
    ";
    send_without_waiting_sends_what_fits: "
        connect
        warm
        a fcntl s SETFL NONBLOCK
        a fill s 100000
        b drain s a $filled
        a fill s 50
        b drain s a $filled
    ";
    wrong_arguments: "
        connect
        warm
        a wrong recv-fault s
        a wrong recv-null-0 s
        a wrong send-null-0 s
        a wrong readv-negative s
        a wrong writev-negative s
        a wrong readv-many s
        a wrong recvmsg-null s
        a wrong sendmsg-null s
        a wrong pread s
        a wrong lseek s
        a wrong fsync s
        a wrong ftruncate s
        a wrong isatty s
        a wrong listen s
        a wrong accept s
        a recv s 1 OOB
        a recv s 10 ERRQUEUE|DONTWAIT
        a send s 3
        b recv s 10
    ";
    bad_buffers_take_nothing: "
        connect
        warm
        b send s 5
        a await s 5
        a wrong recv-fault s
        a ioctl s FIONREAD
        a recv s 10
        a wrong send-fault s
        a send s 3
        b await s 3
        b recv s 10
    ";
    descriptors_that_are_no_sockets: "
        a pipe r w
        a devnull n
        a write w 5
        a read r 10
        a recv r 1
        a send w 1
        a ioctl r FIONREAD
        a close r
        a recv r 1
        a send r 1
        a read r 1
        a close r
        a recv #-1 1
        a shutdown #-1 WR
        a close #-1
        a write n 5
        a read n 5
        a getsockname n
        a close n
        a close w
    ";
    sendfile_from_a_file: "
        connect
        warm
        a file f 100000
        a sendfile s f 1000
        b recvall s 1000
        a sendfile s f 1000 5
        b recvall s 1000
        a sendfile s f 0
        b &r recvall s 99000
        a sendfile s f 1000000
        b join r
        a sendfile s f 10
        a sendfile s f 100 99950
        b recvall s 50
        a send s 10
        b recv s 100
    ";
    sendfile_larger_than_any_buffer: "
        connect
        warm
        a file f 8000000
        a &w sendfile s f 8000000
        a blocked w
        b recvall s 8000000
        a join w
    ";
    splice_from_a_socket: "
        connect
        warm
        b pipe r w
        a send s 1000
        b await s 1000
        b splice s w 400
        b read r 1000
        b splice s w 60000
        b read r 1000
        b fcntl s SETFL NONBLOCK
        b splice s w 100 NONBLOCK
        b splice s w 100
        b fcntl s SETFL -
        a send s 7
        b await s 7
        b recv s 100
        a shutdown s WR
        b await s 0 RDHUP
        b splice s w 100
    ";
    splice_to_a_socket: "
        connect
        warm
        a pipe r w
        a write w 1000
        a splice r s 400
        b recvall s 400
        a splice r s 4000
        b recvall s 600
        a send s 7
        b await s 7
        b recv s 100
    ";
    urgent_data: "
        connect
        warm
        a send s 3
        a send s 1 OOB
        a send s 3
        b poll s:PRI 5000
        b await s - PRI
        b recv s 10
        b ioctl s SIOCATMARK
        b recv s 10 OOB
        b recv s 10 OOB
        b poll s:IN 5000
        b ioctl s SIOCATMARK
        b recvall s 3
        b send s 2
        a recv s 2
        a send s 5
        b recvall s 5
    ";
    urgent_data_in_line: "
        connect
        warm
        b setsockopt s SO_OOBINLINE 1
        a send s 2
        a send s 1 OOB
        b await s - PRI
        b recv s 10
        b ioctl s SIOCATMARK
        b recv s 10
        a send s 4
        b recvall s 4
    ";
    zero_lengths: "
        connect
        warm
        a send s 0
        a writev s 0,0
        a sendmsg s 0
        b poll s:IN 30
        b recv s 0 DONTWAIT
        a send s 1
        b await s 1
        b recv s 0
        b recv s 10
        b shutdown s WR
        a recv s 0
        a recv s 10
    ";
}
