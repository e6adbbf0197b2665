//! Connecting and accepting, addresses, and what unconnected sockets do.

use rsock_tests::scripts;

scripts! {
    accept_flags_are_exact: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        b fcntl l SETFL NONBLOCK
        b accept l s
        a socket s
        a connect s 127.0.0.1:$l
        b poll l:IN 5000
        b accept l s
        b fcntl s GETFL
        b fcntl s GETFD
        a socket t
        a connect t 127.0.0.1:$l
        b poll l:IN 5000
        b accept l t NONBLOCK|CLOEXEC
        b fcntl t GETFL
        b fcntl t GETFD
        a socket u
        a connect u 127.0.0.1:$l
        b poll l:IN 5000
        b accept l u CLOEXEC
        b fcntl u GETFL
        b fcntl u GETFD
        b accept l v 12345
        warm
        warm u
        a send s 5
        b recv s 5
        b fcntl s GETFL
        b fcntl u GETFD
        b accept l v
    ";
    numbers_are_the_lowest_free_ones: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        a socket s
        a devnull n
        a connect s 127.0.0.1:$l
        b accept l s
        warm
        a close n
        a socket t
        a epcreate e
        a devnull n
        a close s
        a devnull m
        a close t
        a close m
        a socket s
        a socket t
        a eventfd v 0
        a close s
        a close t
        a close e
        a file f 10
        b devnull n
    ";
    descriptors_take_no_numbers: "
        !apart
        a descriptors
        b descriptors
        connect
        a descriptors
        b descriptors
        warm
        a descriptors
        b descriptors
        a close s
        b close s
        a descriptors
        b descriptors
    ";
    connecting_without_waiting: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        a socket s inet NONBLOCK|CLOEXEC
        a fcntl s GETFL
        a fcntl s GETFD
        a connect s 127.0.0.1:$l
        a poll s:OUT|IN|RDHUP 5000
        a getsockopt s SO_ERROR
        a send s 5
        a fcntl s SETFL -
        b accept l s
        b recv s 10
        a getpeername s
        warm
        a connect s 127.0.0.1:$l
        b send s 5
        a recv s 10
    ";
    many_connections_without_waiting: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 128
        b &v serve l 200
        a dial 127.0.0.1:$l 200 polling 100 2
        b join v
        b &v serve l 50
        a dial 127.0.0.1:$l 50 blocking 10000 3
        b join v
    ";
    refused: "
        b socket l
        b bind l 127.0.0.1:0
        a socket s
        a connect s 127.0.0.1:$l
        a getsockopt s SO_ERROR
        a poll s:IN|OUT|RDHUP 0
        a send s 5 NOSIGNAL
        a recv s 5
        a socket t inet NONBLOCK
        a connect t 127.0.0.1:$l
        a poll t:IN|OUT|RDHUP 5000
        a epcreate e
        a epadd e t IN|OUT|RDHUP
        a epwait e 4 0
        a select r=t w=t e=t 0
        a getsockopt t SO_ERROR
        a getsockopt t SO_ERROR
        a epwait e 4 0
        a recv t 5
        a send t 5 NOSIGNAL
        b listen l 4
        a socket u
        a connect u 127.0.0.1:$l
        a connect s 127.0.0.1:$l
        b accept l s
        b accept l u
    ";
    failing_again_after_a_refusal: "
        b socket l
        b bind l 127.0.0.1:0
        a socket t inet NONBLOCK
        a connect t 127.0.0.1:$l
        a poll t:OUT 5000
        a connect t 127.0.0.1:$l
        a connect t 127.0.0.1:$l
        a poll t:OUT 5000
        a recv t 1
        a recv t 1
        a close t
    ";
    connecting_twice: "
        connect
        a connect s 127.0.0.1:$l
        warm
        a connect s 127.0.0.1:$l
        b connect s 127.0.0.1:$l
        b connect l 127.0.0.1:$l
        a listen s 4
        a bind s 127.0.0.1:0
        a accept s t
        a send s 5
        b recv s 5
    ";
    disconnecting_with_unspec: "
        connect
        warm
        a send s 5
        b recv s 5
        a connect s unspec
        b await s - ERR
        b recv s 10
        b recv s 10
        a getpeername s
        a recv s 1 DONTWAIT
        a connect s 127.0.0.1:$l
        b accept l t
        a send s 5
        b recv t 10
    ";
    addresses_as_ever: "
        connect
        a getsockname s
        a getpeername s
        b getsockname s
        b getpeername s
        warm
        a getsockname s
        a getpeername s
        b getsockname s
        b getpeername s
        a getsockname s 4
        a getpeername s 0
        b getsockname l
        b getpeername l
        b close s
        a await s - RDHUP
        a getpeername s
        a send s 1
        a await s - ERR
        a getpeername s
        a getsockname s
    ";
    another_address_of_this_machine: "
        b socket l
        b bind l 127.0.0.2:0
        b listen l 16
        a socket s
        a bind s 127.0.0.3:0
        a connect s 127.0.0.2:$l
        b accept l s
        warm
        a getsockname s
        a getpeername s
        b getsockname s
        a send s 10
        b recv s 10
    ";
    a_wildcard_listener: "
        b socket l
        b bind l 0.0.0.0:0
        b listen l 16
        a socket s
        a connect s 127.0.0.1:$l
        b accept l s
        warm
        a socket t
        a connect t 127.0.0.9:$l
        b accept l t
        warm t
        a socket u
        a connect u 0.0.0.0:$l
        b accept l u
        warm u
        b getsockname s
        b getsockname t
        b getsockname u
        b getsockname l
        a send s 10
        b recv s 10
        b send t 10
        a recv t 10
    ";
    ipv6: "
        b socket l inet6
        b setsockopt l IPV6_V6ONLY 1
        b bind l [::1]:0
        b listen l 16
        a socket s inet6
        a connect s [::1]:$l
        b accept l s
        warm
        a getsockname s
        a getpeername s
        b getsockname s
        b getpeername s
        a getsockname s 16
        a send s 10
        b recv s 10
        a getsockopt s SO_DOMAIN
        b getsockopt l IPV6_V6ONLY
        a socket t
        a connect t 127.0.0.1:$l
        a socket u
        a connect u [::1]:$l
    ";
    dual_stack: "
        b socket l inet6
        b setsockopt l IPV6_V6ONLY 0
        b bind l [::]:0
        b listen l 16
        a socket s
        a connect s 127.0.0.1:$l
        b accept l s
        warm
        a getsockname s
        a getpeername s
        b getsockname s
        b getpeername s
        a socket t inet6
        a connect t [::ffff:127.0.0.1]:$l
        b accept l t
        warm t
        a getsockname t
        a getpeername t
        b getpeername t
        a socket u inet6
        a connect u [::1]:$l
        b accept l u
        warm u
        b getpeername u
        a send s 10
        b recv s 10
        a send t 10
        b recv t 10
        b send u 10
        a recv u 10
    ";
    data_before_accept: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        a socket s
        a connect s 127.0.0.1:$l
        a send s 100
        a send s 100
        a poll s:IN|OUT 0
        b poll l:IN 5000
        b accept l s
        b await s 200
        b recv s 150
        b recv s 150
        b send s 5
        a recv s 5
        a socket t
        a connect t 127.0.0.1:$l
        a sendall t 1000
        a close t
        b accept l t
        b recvall t end
        a socket u
        a connect u 127.0.0.1:$l
        a setsockopt u SO_LINGER 1,0
        a close u
        b poll l:IN 5000
        b accept l u null
        b recv u 5
        b recv u 5
    ";
    closing_the_listener: "
        connect
        warm
        a socket t
        a connect t 127.0.0.1:$l
        a send t 5
        b close l
        a await t - ERR
        a recv t 5
        a socket u
        a connect u 127.0.0.1:$l
        a send s 5
        b recv s 5
    ";
    waiting_accept: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        b handle USR1 interrupt
        b &t accept l s
        b blocked t
        b signal t USR1
        b join t
        a socket s
        b &t accept l s
        b blocked t
        a connect s 127.0.0.1:$l
        b join t
        b setsockopt l SO_RCVTIMEO 80
        b timed 80 accept l x
        b setsockopt l SO_RCVTIMEO 0
        b &t accept l x
        b blocked t
        b shutdown l RD
        b join t
        b accept l x
        warm
        a send s 3
        b recv s 3
        a getsockopt s SO_RCVTIMEO 16
        b getsockopt s SO_RCVTIMEO 16
    ";
    listeners_and_names: "
        b socket m
        b bind m 127.0.0.1:0
        b bind m 127.0.0.1:0
        b listen m 4
        b listen m 8
        b socket n
        b bind n 127.0.0.1:$m
        b bind n 192.0.2.1:80
        b setsockopt n SO_REUSEADDR 1
        b bind n 127.0.0.1:$m
        b listen m 0
        a socket s
        a connect s 127.0.0.1:$m
        b accept m s
        warm
        b getsockopt m SO_ACCEPTCONN
        b getsockopt s SO_ACCEPTCONN
        b send m 1 NOSIGNAL
        b recv m 1
        b shutdown m WR
        b tcpinfo m
        b tcpinfo s
        a getsockname #777
        a pipe r w
        a getsockname r
        a listen r 1
        a accept r x
        a connect r 127.0.0.1:$m
        a bind r 127.0.0.1:0
        a getsockopt r SO_TYPE
        a setsockopt r SO_KEEPALIVE 1
        a shutdown r RD
    ";
    reuse_of_a_port: "
        b socket l
        b setsockopt l SO_REUSEPORT 1
        b bind l 127.0.0.1:0
        b listen l 16
        b socket m
        b setsockopt m SO_REUSEPORT 1
        b bind m 127.0.0.1:$l
        b listen m 16
        b getsockopt l SO_REUSEPORT
        b close m
        a socket s
        a connect s 127.0.0.1:$l
        b accept l s
        warm
        a send s 10
        b recv s 10
    ";
    fast_open: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        a socket s
        a sendto s 10 FASTOPEN 127.0.0.1:$l
        b accept l s
        b recv s 10
        warm
        a send s 10
        b recv s 10
        a sendto s 10 - 127.0.0.1:$l
        b recv s 10
        a socket t
        a setsockopt t TCP_FASTOPEN_CONNECT 1
        a connect t 127.0.0.1:$l
        a send t 10
        b accept l t
        b recv t 10
        b send t 10
        a recv t 10
    ";
    deferred_accept: "
        b socket l
        b setsockopt l TCP_DEFER_ACCEPT 5
        b bind l 127.0.0.1:0
        b listen l 16
        a socket s
        a connect s 127.0.0.1:$l
        b poll l:IN 50
        a send s 10
        b poll l:IN 5000
        b accept l s
        b recv s 10
        warm
        b send s 10
        a recv s 10
    ";
    a_number_used_again_is_a_new_stream: "
        connect
        warm
        a send s 10
        a close s
        b recv s 10
        b recv s 10
        b close s
        connect s
        a send s 3
        b recv s 10
        warm
        b send s 4
        a recv s 10
        a close s
        a pipe s w
        a write w 5
        a read s 10
        b recv s 1
        b close s
        b file s 10
        b read s 10
    ";
    several_streams_between_two_processes: "
        connect s
        connect t
        connect u
        warm s
        warm t
        warm u
        a send s 10
        a send t 20
        a send u 30
        b recvall u 30
        b recvall s 10
        b close t
        a await t - RDHUP
        b send u 5
        a recv u 5
        a close u
        b recv u 5
        b send s 7
        a recv s 7
        connect v
        warm v
        a sendall v 100000
        b recvall v 100000
    ";
    other_sockets_are_untouched: "
        a unixpair u v
        a send u 10
        a recv v 20
        a poll v:IN|OUT 0
        a fcntl u GETFL
        a fstat u
        a close u
        a recv v 10
        a send v 1 NOSIGNAL
        a epcreate e
        a epadd e v IN|OUT
        a epwait e 4 0
    ";
}
