//! Processes: fork, exec, posix_spawn, passed descriptors, daemons, and every way to end.

use rsock_tests::scripts;

scripts! {
    a_child_and_its_parent_share_a_stream: "
        connect
        warm
        a send s 5
        b recv s 5
        a fork c
        a.c send s 5
        b recv s 5
        a send s 5
        b recv s 5
        a.c send s 5
        b recv s 5
        b send s 5
        a.c recv s 5
        b send s 5
        a recv s 5
        a.c exit 3
        a wait c
        a send s 5
        b recv s 5
        b send s 5
        a recv s 5
        a close s
        b recv s 5
    ";
    a_child_that_only_allocates_does_no_harm: "
        connect
        warm
        a send s 5
        b recv s 5
        a fork c
        a.c allocate 64
        a send s 5
        b recv s 5
        a.c _exit 0
        a wait c
        a sendall s 100000
        b recvall s 100000
        b send s 5
        a recv s 5
        a fork d
        a.d allocate 16
        a.d exit 0
        a wait d
        a sendall s 100000
        b recvall s 100000
        b sendall s 100000
        a recvall s 100000
    ";
    unread_bytes_are_for_whoever_reads: "
        connect
        warm
        b sendall s 10000
        a await s 10000
        a fork c
        a.c recv s 3000
        a recv s 3000
        a.c recv s 3000
        a recv s 3000
        b send s 5
        a.c recv s 5
        a.c exit 0
        a wait c
        a recv s 5 DONTWAIT
    ";
    a_childs_close_does_not_end_the_stream: "
        connect
        warm
        a fork c
        a.c close s
        b poll s:IN|RDHUP 30
        a send s 5
        b recv s 5
        a.c exit 0
        a wait c
        b poll s:IN|RDHUP 30
        b send s 5
        a recv s 5
        a close s
        b recv s 5
    ";
    the_parent_closes_and_the_child_serves: "
        connect
        warm
        b fork c
        b close s
        a poll s:IN|RDHUP 30
        a send s 100
        b.c recv s 100
        b.c send s 100
        a recv s 100
        a sendall s 50000
        b.c recvall s 50000
        b.c close s
        a recv s 5
        b.c exit 0
        b wait c
    ";
    a_server_that_forks_for_each_connection: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        a socket s
        a connect s 127.0.0.1:$l
        b accept l s
        b fork c
        b close s
        b.c close l
        warm s a b.c
        a socket t
        a connect t 127.0.0.1:$l
        b accept l t
        b fork d
        b close t
        b.d close l
        warm t a b.d
        a send s 10
        a send t 20
        b.d recv t 100
        b.c recv s 100
        b.c send s 5
        a recv s 5
        b.d exit 0
        a recv t 5
        b wait d
        b.c exit 0
        a recv s 5
        b wait c
    ";
    a_child_that_took_a_stream_to_a_lane_gives_it_back_while_it_idles: "
        connect
        a fork c
        warm s a.c b
        a send s 5
        b recv s 5
        b send s 5
        a recv s 5
        a.c send s 5
        b recv s 5
        a.c exit 0
        a wait c
    ";
    two_children_of_one_parent_want_the_same_stream: "
        connect
        a fork c
        a fork d
        warm s a.c b
        a.d send s 5
        b recv s 5
        b send s 5
        a.d recv s 5
        a.c exit 0
        a.d exit 0
        a wait c
        a wait d
    ";
    a_child_that_waits_before_it_reads: "
        connect
        warm
        a fork c
        b send s 5
        a.c poll s:IN 3000
        a.c recv s 5
        a.c exit 0
        a wait c
    ";
    a_child_that_puts_a_stream_into_an_epoll_instance_of_its_own: "
        connect
        warm
        a fork c
        b send s 5
        a.c epcreate e
        a.c epadd e s IN
        a.c epwait e 8 3000
        a.c recv s 5
        a.c exit 0
        a wait c
    ";
    a_child_that_waits_in_its_parents_epoll_instance: "
        connect
        a epcreate e
        a epadd e s IN
        warm
        a fork c
        b send s 5
        a.c epwait e 8 3000
        a.c recv s 5
        a.c exit 0
        a wait c
    ";
    children_that_accept_from_one_listener: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        b fork c
        b fork d
        a socket s
        a connect s 127.0.0.1:$l
        b.c accept l s
        a socket t
        a connect t 127.0.0.1:$l
        b.d accept l t
        a socket u
        a connect u 127.0.0.1:$l
        b accept l u
        warm s a b.c
        warm t a b.d
        warm u a b
        a send s 10
        a send t 20
        a send u 30
        b.c recv s 100
        b.d recv t 100
        b recv u 100
        b.c send s 5
        b.d send t 5
        b send u 5
        a recv s 5
        a recv t 5
        a recv u 5
        b.c exit 0
        b.d exit 0
        b wait c
        b wait d
        a recv s 5
        a recv t 5
        a send u 5
        b recv u 5
    ";
    children_listening_on_one_port: "
        b socket l
        b setsockopt l SO_REUSEPORT 1
        b bind l 127.0.0.1:0
        b fork c
        b close l
        b.c listen l 16
        a socket s
        a connect s 127.0.0.1:$l
        b.c accept l s
        warm s a b.c
        a send s 10
        b.c recv s 10
        b.c exit 0
        b wait c
        a recv s 10
        a socket t
        a connect t 127.0.0.1:$l
    ";
    children_connect_for_themselves: "
        connect
        warm
        a fork c
        a.c socket t
        a.c connect t 127.0.0.1:$l
        b accept l t
        warm t a.c b
        a.c send t 10
        b recv t 10
        a send s 10
        b recv s 10
        b send t 10
        a.c recv t 10
        a.c exit 0
        a wait c
        b recv t 10
        a send s 10
        b recv s 10
    ";
    two_ends_of_one_stream_in_parent_and_child: "
        !apart
        a socket l
        a bind l 127.0.0.1:0
        a listen l 4
        a socket s
        a connect s 127.0.0.1:$l
        a accept l t
        a fork c
        a close t
        a.c close s
        a send s 10
        a.c recv t 10
        a.c sendall t 50000
        a recvall s 50000
        a close s
        a.c recv t 10
        a.c exit 0
        a wait c
    ";
    exec_keeps_the_stream: "
        !apart
        connect
        warm
        a send s 5
        b recv s 5
        a exec execve
        a send s 5
        b recv s 5
        b send s 5
        a recv s 5
        a exec execv
        a send s 5
        b recv s 5
        rewarm
        a sendall s 50000
        b recvall s 50000
        a exec execvp
        b send s 5
        a recv s 5
        a exec fexecve
        a send s 5
        b recv s 5
        a exec execvpe
        a close s
        b recv s 5
    ";
    exec_keeps_what_was_sent_and_not_read: "
        !apart
        connect
        warm
        a sendall s 10000
        b sendall s 10000
        a await s 10000
        a exec execve
        b recvall s 10000
        a recvall s 10000
        a close s
        b recv s 5
    ";
    exec_without_the_library: "
        !apart
        connect
        warm
        a sendall s 1000
        b sendall s 1000
        a exec bare
        b recvall s 1000
        a recvall s 1000
        a sendall s 50000
        b recvall s 50000
        b sendall s 50000
        a recvall s 50000
        b close s
        a recv s 5
    ";
    exec_closes_what_it_must: "
        !apart
        connect
        warm
        connect t
        warm t
        a fcntl s SETFD 1
        a sendall s 1000
        a sendall t 500
        a exec execve
        b recvall s end
        a sendall t 1000
        b recvall t 1500
        a recv s 1
        b send s 5 NOSIGNAL
    ";
    exec_that_fails_changes_nothing: "
        connect
        warm
        a send s 5
        a exec missing
        a send s 5
        b recvall s 10
        b send s 5
        a recv s 5
        rewarm
        a sendall s 50000
        b recvall s 50000
    ";
    a_spawned_program_gets_the_stream: "
        connect
        warm
        a send s 5
        b recv s 5
        a spawn c s=700
        a.c send s 10
        b recv s 10
        b send s 10
        a.c recv s 10
        a close s
        a.c send s 5
        b recv s 5
        a.c exit 0
        a wait c
        b recv s 5
    ";
    a_spawned_program_that_only_inherits: "
        connect
        warm
        a spawn c
        a send s 10
        b recv s 10
        b send s 10
        a recv s 10
        a.c exit 4
        a wait c
        a sendall s 50000
        b recvall s 50000
        a close s
        b recv s 5
    ";
    commands_leave_streams_alone: "
        connect
        warm
        a send s 5
        a system true
        a send s 5
        b recvall s 10
        a &r recv s 5
        a blocked r
        a system true
        b send s 5
        a join r
        a &w sendall s 3000000
        a system true
        b recvall s 3000000
        a join w
    ";
    a_descriptor_is_passed_to_another_process: "
        connect
        warm
        a unixpair u v
        a fork c
        connect t
        warm t
        a send t 5
        b recv t 5
        a sendfd u t
        a.c recvfd v t
        a.c send t 10
        b recv t 10
        a close t
        b poll t:IN|RDHUP 30
        b send t 10
        a.c recv t 10
        a.c sendall t 50000
        b recvall t 50000
        a.c close t
        b recv t 5
        a send s 5
        b recv s 5
    ";
    a_descriptor_is_passed_with_bytes_unread: "
        connect
        warm
        a unixpair u v
        a fork c
        connect t
        warm t
        b send t 100
        a await t 100
        a recv t 30
        a sendfd u t
        a close t
        a.c recvfd v t
        a.c recv t 100
        b send t 10
        a.c recv t 100
        a.c exit 0
        b recv t 5
    ";
    a_descriptor_is_passed_within_a_process: "
        connect
        warm
        a unixpair u v
        a sendfd u s
        a recvfd v d
        a send d 5
        b recv s 5
        a send s 5
        b recv s 5
        a close s
        b send s 5
        a recv d 5
        a close d
        b recv s 5
    ";
    a_daemon_keeps_its_streams: "
        !apart
        connect
        warm
        b send s 5
        a daemon
        a recv s 5
        a send s 5
        b recv s 5
        a sendall s 50000
        b recvall s 50000
        connect t
        warm t
        a send t 5
        b recv t 5
        b close s
        a recv s 5
    ";
    a_daemon_that_listens: "
        !apart
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        b daemon
        connect s
        warm
        a send s 5
        b recv s 5
        b sendall s 50000
        a recvall s 50000
    ";
    exit_delivers_what_was_sent: "
        !apart
        connect
        warm
        a sendall s 50000
        a exit 5
        ended a
        b recvall s end
        b recv s 5
    ";
    exit_with_full_buffers: "
        !apart
        connect
        warm
        a fill s
        a exit 0
        ended a
        b drain s a $filled
        b recv s 5
    ";
    immediate_exit_delivers: "
        !apart
        connect
        warm
        a fill s
        a _exit 6
        ended a
        b drain s a $filled
        b recv s 5
    ";
    returning_from_main_delivers: "
        !apart
        connect
        warm
        a fill s
        a return 7
        ended a
        b drain s a $filled
        b recv s 5
    ";
    a_killed_sender_delivers_what_was_sent: "
        !apart
        connect
        warm
        a fill s
        a die KILL
        ended a
        b drain s a $filled
        b recv s 5
        b send s 5
        b await s - ERR
    ";
    a_terminated_sender_delivers_what_was_sent: "
        !apart
        connect
        warm
        a sendall s 50000
        a die TERM
        ended a
        b recvall s end
    ";
    an_aborted_sender_delivers_what_was_sent: "
        !apart
        connect
        warm
        a sendall s 50000
        a die ABRT
        ended a
        b recvall s end
    ";
    a_killed_receiver_resets: "
        !apart
        connect
        warm
        a send s 100
        b await s 100
        b die KILL
        ended b
        a await s - ERR
        a recv s 5
        a recv s 5
        a send s 5 NOSIGNAL
    ";
    a_killed_receiver_ends_a_blocked_sender: "
        !apart
        connect
        warm
        a &w push s 100000000
        a blocked w
        b die KILL
        ended b
        a join w
        a recv s 5
    ";
    a_killed_peer_ends_a_blocked_receiver: "
        !apart
        connect
        warm
        a &r recv s 10
        a &p poll s:IN|RDHUP -1
        a epcreate e
        a epadd e s IN|RDHUP
        a &e epwait e 4 -1
        a blocked r
        a blocked p
        a blocked e
        b die KILL
        ended b
        a join r
        a join p
        a join e
        a send s 5 NOSIGNAL
        a await s - ERR
        a send s 5 NOSIGNAL
    ";
    a_killed_child_does_not_end_the_stream: "
        connect
        warm
        a fork c
        a.c send s 5
        b recv s 5
        a killchild c KILL
        a wait c
        a send s 5
        b recv s 5
        b send s 5
        a recv s 5
        a close s
        b recv s 5
    ";
    a_stopped_receiver_holds_nobody_up: "
        !apart
        connect
        warm
        kill b STOP
        a fill s
        a close s
        a exit 0
        ended a
        kill b CONT
        b drain s a $filled
        b recv s 5
    ";
    a_stopped_peer_just_is_slow: "
        !apart
        connect
        warm
        kill b STOP
        a send s 5
        a recv s 5 DONTWAIT
        a poll s:IN 30
        a sendall s 20000
        kill b CONT
        b recvall s 20005
        b send s 5
        a recv s 5
    ";
    exit_while_threads_are_in_calls: "
        !apart
        connect
        warm
        connect t
        warm t
        a &r recv s 10
        a &p poll s:IN -1
        a epcreate e
        a epadd e s IN
        a &e epwait e 4 -1
        a &w push t 100000000
        a blocked r
        a blocked p
        a blocked e
        a blocked w
        a exit 9
        ended a
        b recv s 5
        b recvall t 100000 a
    ";
    fork_while_threads_are_in_calls: "
        connect
        warm
        connect t
        warm t
        a &r recv s 10
        a &p poll s:IN -1
        a &w push t 20000000
        a blocked r
        a blocked p
        a blocked w
        a fork c
        a.c allocate 8
        a.c socket n
        a.c connect n 127.0.0.1:$l
        b accept l n
        a.c send n 5
        b recv n 5
        a.c exit 0
        a wait c
        b send s 5
        a join r
        b send s 5
        a join p
        b recvall t 20000000 a
        a join w
    ";
    many_children_one_after_the_other: "
        connect
        warm
        a fork c
        a.c exit 0
        a wait c
        a fork c
        a.c exit 0
        a wait c
        a fork c
        a.c close s
        a.c exit 0
        a wait c
        a fork c
        a.c send s 4
        b recv s 4
        a.c exit 0
        a wait c
        a send s 4
        b recv s 4
        a fork c
        b send s 4
        a.c recv s 4
        a.c exit 0
        a wait c
        b send s 4
        a recv s 4
    ";
    grandchildren: "
        connect
        warm
        a fork c
        a.c send s 4
        b recv s 4
        a.c exec execve
        a.c send s 4
        b recv s 4
        b send s 4
        a.c recv s 4
        a close s
        a.c sendall s 40000
        b recvall s 40000
        a.c exit 0
        a wait c
        b recv s 4
    ";
    nothing_is_left_behind: "
        !apart
        connect
        warm
        a send s 5
        b recv s 5
        a exit 0
        ended a
        b recv s 5
        b close s
        b close l
        b socket l
        b setsockopt l SO_REUSEADDR 1
        b bind l 127.0.0.1:0
        b listen l 4
        b descriptors
    ";
}
