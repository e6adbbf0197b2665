//! Everything else that sockets do: ending a stream, errors, options, time-outs, signals, duplicates.

use rsock_tests::scripts;

scripts! {
    half_close: "
        connect
        warm
        a send s 10
        a shutdown s WR
        a send s 5 NOSIGNAL
        b recvall s end
        b recv s 10
        b recv s 10 DONTWAIT
        b tcpinfo s
        b send s 20
        a recv s 50
        b send s 20
        b close s
        a recvall s end
        a recv s 10
        a poll s:IN|OUT|RDHUP 0
        a shutdown s WR
        a close s
    ";
    half_close_of_the_server: "
        connect
        warm
        b shutdown s WR
        a recv s 10
        b &r recvall s end
        a sendall s 200000
        a sendall s 200000
        a shutdown s WR
        b join r
        a await s 0 HUP
        b await s 0 HUP
        a recv s 1
        b recv s 1
    ";
    shutdown_for_receiving: "
        connect
        warm
        b send s 10
        a await s 10
        a shutdown s RD
        a poll s:IN|RDHUP 0
        a recv s 5
        a recv s 10
        a recv s 10
        a recv s 10 DONTWAIT
        a send s 10
        b recv s 10
        b send s 10 NOSIGNAL
        a await s 10
        a recv s 20
        a recv s 20
        a shutdown s RD
        a close s
        b await s - RDHUP
        b recv s 1
    ";
    shutdown_of_both: "
        connect
        warm
        a send s 10
        a shutdown s RDWR
        a recv s 10
        a send s 10 NOSIGNAL
        a poll s:IN|OUT|RDHUP 0
        b await s 10 RDHUP
        b recv s 5
        b recv s 10
        b recv s 10
        b send s 10
        b shutdown s RDWR
        b shutdown s RDWR
        a close s
        b close s
    ";
    shutdown_is_refused: "
        connect
        warm
        a shutdown s 3
        a shutdown s -1
        a socket t
        a shutdown t WR
        a shutdown t 7
        a send s 10
        b recv s 10
    ";
    closing_delivers_what_was_sent: "
        connect
        warm
        a sendall s 100000
        a close s
        b recvall s end
        b recv s 10
        b poll s:IN|OUT|RDHUP 0
        b send s 10 NOSIGNAL
        b await s - ERR
        b send s 10 NOSIGNAL
        b recv s 10
    ";
    closing_with_full_buffers_delivers: "
        connect
        warm
        a fill s
        a close s
        b drain s a $filled
        b recv s 10
        connect t
        warm t
        b fill t
        b shutdown t WR
        b close t
        a drain t b $filled
        a recv t 10
    ";
    closing_with_unread_bytes_resets: "
        connect
        warm
        b send s 10
        a await s 10
        a close s
        b await s - ERR
        b poll s:IN|OUT|RDHUP 0
        b recv s 10
        b recv s 10
        b send s 10 NOSIGNAL
        b poll s:IN|OUT|RDHUP 0
    ";
    bytes_after_close_reset: "
        connect
        warm
        a close s
        b await s 0 RDHUP
        b send s 10
        b await s - ERR
        b poll s:IN|OUT|RDHUP 0
        b send s 10 NOSIGNAL
        b recv s 10
        b getsockopt s SO_ERROR
    ";
    unread_bytes_survive_a_reset: "
        connect
        warm
        a send s 10
        b await s 10
        b recv s 4
        a setsockopt s SO_LINGER 1,0
        a close s
        b await s - ERR
        b ioctl s FIONREAD
        b getsockopt s SO_ERROR
        b recv s 10
        b recv s 10
        b recv s 10
    ";
    a_reset_is_told_once: "
        connect
        warm
        a setsockopt s SO_LINGER 1,0
        a close s
        b await s - ERR
        b recv s 10
        b recv s 10
        b send s 10 NOSIGNAL
        b shutdown s WR
        b shutdown s RD
        b close s
        connect t
        warm t
        a setsockopt t SO_LINGER 1,0
        a close t
        b await t - ERR
        b getsockopt t SO_ERROR
        b getsockopt t SO_ERROR
        b recv t 10
        b send t 10 NOSIGNAL
        connect u
        warm u
        a setsockopt u SO_LINGER 1,0
        a close u
        b await u - ERR
        b send u 10 NOSIGNAL
        b send u 10 NOSIGNAL
        b recv u 10
        b tcpinfo u
    ";
    a_reset_ends_blocked_calls: "
        connect
        warm
        b &r recv s 10
        b blocked r
        a setsockopt s SO_LINGER 1,0
        a close s
        b join r
        connect t
        warm t
        b &w push t 100000000
        b blocked w
        a setsockopt t SO_LINGER 1,0
        a close t
        b join w
    ";
    lingering: "
        connect
        warm
        a setsockopt s SO_LINGER 1,1
        a getsockopt s SO_LINGER 8
        a send s 10
        a close s
        b recvall s end
        connect t
        warm t
        a setsockopt t SO_LINGER 1,1
        a fill t
        a timed 900 close t
        b drain t a $filled
        b recv t 10
        connect u
        warm u
        a setsockopt u SO_LINGER 0,5
        a getsockopt u SO_LINGER 8
        a send u 5
        a close u
        b recvall u end
    ";
    linger_zero_after_shutdown: "
        connect
        warm
        a send s 10
        a shutdown s WR
        b await s 10 RDHUP
        a setsockopt s SO_LINGER 1,0
        a close s
        b await s - ERR
        b recv s 10
        b recv s 10
    ";
    broken_pipe: "
        connect
        warm
        a handle PIPE interrupt
        a shutdown s WR
        a send s 5
        a caught
        a send s 5 NOSIGNAL
        a caught
        a write s 5
        a caught
        a writev s 5,5
        a caught
        a sendmsg s 5
        a caught
        a sendmsg s 5 NOSIGNAL
        a caught
        a file f 100
        a sendfile s f 10
        a caught
        a handle PIPE ignore
        a write s 5
        a send s 0
        b recv s 5
    ";
    broken_pipe_after_a_reset: "
        connect
        warm
        a handle PIPE interrupt
        b close s
        a await s - RDHUP
        a send s 5
        a await s - ERR
        a send s 5
        a caught
        a send s 5
        a caught
    ";
    receive_time_outs: "
        connect
        warm
        a setsockopt s SO_RCVTIMEO 80
        a getsockopt s SO_RCVTIMEO 16
        a timed 80 recv s 10
        a timed 80 read s 10
        a timed 80 readv s 5,5
        a timed 80 recvmsg s 10
        a timed 80 recv s 10 PEEK
        b send s 4
        a recv s 10
        b send s 4
        a await s 4
        a timed 80 recv s 10 WAITALL
        a recv s 10 DONTWAIT
        a poll s:IN 10
        a setsockopt s SO_RCVTIMEO 0
        a &r recv s 10
        sleep 120
        a running r
        b send s 4
        a join r
        b getsockopt s SO_RCVTIMEO 16
    ";
    send_time_outs: "
        connect
        warm
        a setsockopt s SO_SNDTIMEO 100
        a getsockopt s SO_SNDTIMEO 16
        a timed 100 push s 100000000
        a setsockopt s SO_SNDTIMEO 0
        b drain s a $pushed
        a send s 10
        b recvall s 10 a
        a setsockopt s SO_SNDTIMEO 5000
        a send s 10
        b recvall s 10 a
    ";
    a_time_out_leaves_a_partial_count: "
        connect
        warm
        a setsockopt s SO_SNDTIMEO 150
        a &w timed 100 push s 30000000
        b drain s a 1000000
        a join w
    ";
    error_option: "
        connect
        warm
        a getsockopt s SO_ERROR
        b setsockopt s SO_LINGER 1,0
        b close s
        a await s - ERR
        a getsockopt s SO_ERROR
        a getsockopt s SO_ERROR
        a poll s:IN|OUT|RDHUP 0
        a recv s 10
    ";
    what_a_socket_is: "
        connect
        a socket n
        warm
        a getsockopt s SO_TYPE
        a getsockopt s SO_DOMAIN
        a getsockopt s SO_PROTOCOL
        a getsockopt s SO_ACCEPTCONN
        a getsockopt s SO_ERROR 2
        a getsockopt s SO_TYPE 0
        a getsockopt s SO_TYPE 64
        b getsockopt s SO_TYPE
        b getsockopt l SO_ACCEPTCONN
        a getsockopt n SO_TYPE
        a fstat s
        b fstat s
        a tcpinfo s 1
        a tcpinfo s 104
        a tcpinfo s
        b tcpinfo s
        b tcpinfo l
        a tcpinfo n
    ";
    states_of_a_stream: "
        connect
        warm
        a tcpinfo s
        b tcpinfo s
        a shutdown s WR
        b await s 0 RDHUP
        b recv s 1
        sleep 120
        a tcpinfo s
        b tcpinfo s
        b shutdown s WR
        a await s 0 HUP
        a recv s 1
        sleep 120
        b tcpinfo s
    ";
    options_are_remembered: "
        connect
        warm
        a getsockopt s TCP_NODELAY
        a setsockopt s TCP_NODELAY 1
        a getsockopt s TCP_NODELAY
        a setsockopt s TCP_NODELAY 0
        a getsockopt s TCP_NODELAY
        a setsockopt s SO_KEEPALIVE 1
        a getsockopt s SO_KEEPALIVE
        a setsockopt s TCP_KEEPIDLE 77
        a getsockopt s TCP_KEEPIDLE
        a setsockopt s TCP_KEEPINTVL 7
        a getsockopt s TCP_KEEPINTVL
        a setsockopt s TCP_KEEPCNT 3
        a getsockopt s TCP_KEEPCNT
        a setsockopt s TCP_USER_TIMEOUT 5000
        a getsockopt s TCP_USER_TIMEOUT
        a setsockopt s TCP_CORK 1
        a getsockopt s TCP_CORK
        a setsockopt s TCP_CORK 0
        a getsockopt s TCP_CORK
        a setsockopt s SO_PRIORITY 3
        a getsockopt s SO_PRIORITY
        a setsockopt s SO_OOBINLINE 1
        a getsockopt s SO_OOBINLINE
        a setsockopt s SO_REUSEADDR 1
        a getsockopt s SO_REUSEADDR
        a setsockopt s SO_RCVLOWAT 5
        a getsockopt s SO_RCVLOWAT
        a setsockopt s SO_RCVLOWAT 0
        a getsockopt s SO_RCVLOWAT
        a getsockopt s SO_SNDLOWAT
        a setsockopt s SO_SNDLOWAT 5
        a setsockopt s IP_TOS 16
        a getsockopt s IP_TOS
        a setsockopt s TCP_QUICKACK 0
        a setsockopt s TCP_NOTSENT_LOWAT 10000
        a getsockopt s TCP_NOTSENT_LOWAT
        a getsockopt s SO_LINGER 8
        a setsockopt s TCP_LINGER2 5
        a getsockopt s TCP_LINGER2
        b getsockopt s TCP_NODELAY
        b getsockopt s SO_KEEPALIVE
        a send s 10
        b recv s 10
    ";
    options_are_inherited_from_the_listener: "
        b socket l
        b setsockopt l TCP_NODELAY 1
        b setsockopt l SO_KEEPALIVE 1
        b setsockopt l SO_RCVBUF 20000
        b setsockopt l SO_LINGER 1,3
        b setsockopt l SO_RCVTIMEO 90
        b bind l 127.0.0.1:0
        b listen l 16
        a socket s
        a connect s 127.0.0.1:$l
        b accept l s
        warm
        b getsockopt s TCP_NODELAY
        b getsockopt s SO_KEEPALIVE
        b getsockopt s SO_RCVBUF
        b getsockopt s SO_LINGER 8
        b getsockopt s SO_RCVTIMEO 16
        b timed 90 recv s 10
    ";
    options_are_refused: "
        connect
        warm
        a getsockopt s UNKNOWN
        a setsockopt s UNKNOWN 1
        a getsockopt s TCP_UNKNOWN
        a setsockopt s TCP_UNKNOWN 1
        a setsockopt s TCP_NODELAY 1 0
        a setsockopt s TCP_NODELAY 1 3
        a setsockopt s SO_ERROR 1
        a setsockopt s SO_TYPE 1
        a setsockopt s SO_RCVTIMEO 100 4
        a setsockopt s SO_LINGER 1,1 4
        a setsockopt s SO_KEEPALIVE 1 2
        a getsockopt s SO_RCVTIMEO 8
        a getsockopt s TCP_NODELAY 2
        a setsockopt s IPV6_V6ONLY 1
        a getsockopt s IPV6_V6ONLY
        a setsockopt s TCP_KEEPIDLE 0
        a getsockopt #777 SO_TYPE
        a setsockopt #777 SO_KEEPALIVE 1
        a send s 10
        b recv s 10
    ";
    buffer_sizes: "
        connect
        warm
        a setsockopt s SO_SNDBUF 30000
        a getsockopt s SO_SNDBUF
        a setsockopt s SO_RCVBUF 30000
        a getsockopt s SO_RCVBUF
        a setsockopt s SO_SNDBUF 1
        a getsockopt s SO_SNDBUF
        b setsockopt s SO_RCVBUF 1
        b getsockopt s SO_RCVBUF
        b &r recvall s 50000 a
        a sendall s 50000
        b join r
        a fill s
        a poll s:OUT 0
        b drain s a $filled
        a poll s:OUT 5000
    ";
    how_much_is_queued: "
        connect
        warm
        b ioctl s FIONREAD
        a send s 10
        b await s 10
        b ioctl s FIONREAD
        a send s 20
        b await s 30
        b recv s 5
        b ioctl s FIONREAD
        b recv s 100
        b ioctl s FIONREAD
        a emptied s
        a send s 1000
        b await s 1000
        a emptied s
        b recv s 2000
        a shutdown s WR
        b await s 0 RDHUP
        b ioctl s FIONREAD
        b recv s 1
        b ioctl s FIONREAD
        b ioctl l FIONREAD
        b ioctl l SIOCOUTQ
        a socket n
        a ioctl n FIONREAD
        a ioctl n SIOCOUTQ
        a ioctl n SIOCATMARK
    ";
    ioctl_and_fcntl: "
        connect
        warm
        a fcntl s GETFL
        a ioctl s FIONBIO 1
        a fcntl s GETFL
        a recv s 1
        a ioctl s FIONBIO 0
        a fcntl s GETFL
        a fcntl s SETFL NONBLOCK
        a fcntl s GETFL
        a recv s 1
        a fcntl s SETFL -
        a fcntl s GETFL
        a fcntl s GETFD
        a ioctl s FIOCLEX
        a fcntl s GETFD
        a ioctl s FIONCLEX
        a fcntl s GETFD
        a fcntl s SETFD 1
        a fcntl s GETFD
        a fcntl s SETFD 0
        a fcntl s UNKNOWN
        a ioctl s UNKNOWN
        a ioctl s TCGETS
        a ioctl s SIOCATMARK
        a fcntl s GETOWN
        a fcntl #777 GETFL
        a ioctl #777 FIONREAD
        a send s 10
        b recv s 10
    ";
    duplicates_share_the_stream: "
        connect
        warm
        a dup s d
        a send d 10
        a send s 10
        b await s 20
        b recv s 30
        b send s 10
        a await d 10
        a recv d 4
        a recv s 10
        a fcntl s SETFL NONBLOCK
        a fcntl d GETFL
        a recv d 1
        a fcntl d SETFL -
        a fcntl s GETFL
        a setsockopt d SO_RCVTIMEO 60
        a getsockopt s SO_RCVTIMEO 16
        a timed 60 recv s 1
        a fcntl d SETFD 1
        a fcntl s GETFD
        a close s
        a send d 5
        b recv s 5
        b poll s:IN|RDHUP 20
        a close d
        b recv s 5
    ";
    every_way_to_duplicate: "
        connect
        warm
        a dup s d
        a dupfd s e 100
        a dupfd s f 100 CLOEXEC
        a fcntl e GETFD
        a fcntl f GETFD
        a dup3 s g #200 CLOEXEC
        a fcntl g GETFD
        a dup2 s h #201
        a fcntl h GETFD
        a dup2 s i s
        a dup3 s j s
        a dup3 s j #202 NONBLOCK
        a dup #777 k
        a dup2 #777 k s
        a dupfd s k -1
        a send d 1
        a send e 1
        a send f 1
        a send g 1
        a send h 1
        b await s 5
        b recv s 10
        a close s
        a close d
        a close e
        a close f
        a close g
        b send s 4
        a recv h 10
        a getpeername h
        a close h
        b recv s 10
    ";
    a_duplicate_over_a_stream_closes_it: "
        connect
        warm
        connect t
        warm t
        a send t 5
        a dup2 s t t
        b recvall t end
        a send t 5
        b recv s 5
        a close s
        a send t 5
        b recv s 5
        a devnull n
        a dup2 n t t
        b recv s 5
    ";
    closing_under_a_blocked_receiver: "
        connect
        warm
        a &r recv s 10
        a blocked r
        a close s
        sleep 30
        a running r
        b send s 5
        a join r
        b await s - RDHUP
        b recv s 5
    ";
    closing_many: "
        connect
        warm
        connect t
        warm t
        a dupfd s d 100
        a dupfd t e 101
        a sendall s 1000
        a close_range 100 101
        a send d 1 NOSIGNAL
        a send s 1
        b recvall s 1001
        a dupfd s d 100
        a close_range 100 200 4
        a fcntl d GETFD
        a send d 1
        b recv s 1
        a close_range 200 100
        a sweep 100 899
        a send s 5
        b recv s 5
        a send t 5
        b recv t 5
    ";
    closing_all_the_numbers_that_daemons_close: "
        !apart
        connect
        warm
        a sendall s 1000
        a sweep 3 899
        b recvall s end
        a socket s
        a connect s 127.0.0.1:$l
        b accept l t
        a send s 5
        b recv t 5
        b send t 5
        a recv s 5
    ";
    kernel_tls_and_zero_copy_options: "
        connect
        warm
        a setsockopt s SO_ZEROCOPY 1
        a getsockopt s SO_ZEROCOPY
        a send s 10
        b recv s 10
        a setsockopt s SO_INCOMING_CPU 0
        a setsockopt s SO_BUSY_POLL 0
        a getsockopt s SO_BUSY_POLL
        a send s 10
        b recv s 10
    ";
    a_long_conversation_with_everything: "
        connect
        warm
        a send s 10
        b recv s 10 PEEK
        b recv s 10
        b sendmmsg s 10/10
        a recvall s 20
        a send s 1 OOB
        b await s - PRI
        b recv s 1 OOB
        a sendall s 200000 7000
        b recvall s 200000
        b send s 5
        a recv s 5
        rewarm
        b sendall s 100000
        a recvall s 100000
        a shutdown s WR
        b recv s 10
        b sendall s 100000
        b close s
        a recvall s end
    ";
}
