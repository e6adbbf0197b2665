//! Waiting: poll, select and epoll, in all their modes, on lanes and off.

use rsock_tests::scripts;

scripts! {
    poll_shows_what_is_there: "
        connect
        warm
        a poll s:IN|OUT 0
        a poll s:IN 0
        a poll s:- 0
        b send s 5
        a await s 5
        a poll s:IN|OUT|RDNORM|WRNORM|PRI|RDHUP 0
        a poll s:OUT 0
        a recv s 3
        a poll s:IN 0
        a recv s 3
        a poll s:IN 0
        a poll s:IN,-:IN,s:OUT 0
        a poll #777:IN,s:OUT 0
        a poll nothing 0
    ";
    ppoll_shows_what_is_there: "
        connect
        warm
        a ppoll s:IN|OUT 0
        b send s 5
        a ppoll s:IN -1
        a recv s 10
        a timed 60 ppoll s:IN 60
        a ppoll s:IN 0 none
    ";
    select_shows_what_is_there: "
        connect
        warm
        a select r=s w=s e=s 0
        a select r=s 0
        a select w=s -1
        b send s 5
        a select r=s -1
        a select r=s w=s 0
        a pselect r=s w=s 0
        a pselect r=s -1 none
        a recv s 10
        a timed 60 select r=s 60
        a timed 60 pselect r=s 60
        a timed 30 select 30
        b shutdown s WR
        a select r=s e=s -1
        a close s
        a select r=s 0
    ";
    waiters_are_woken: "
        connect
        warm
        a &p poll s:IN -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a &p ppoll s:IN -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a &p select r=s -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a &p pselect r=s -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a epcreate e
        a epadd e s IN
        a &p epwait e 4 -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a &p eppwait e 4 -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a &p eppwait2 e 4 -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a epwait e 4 0
    ";
    a_hop_during_the_wait_wakes_all_the_same: "
        connect
        a epcreate e
        a epadd e s IN
        a &p epwait e 4 -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a &p epwait e 4 -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a &p poll s:IN -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a send s 7
        b await s 7
        b recv s 10
        a &p epwait e 4 -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a epwait e 4 0
    ";
    timeouts_are_not_early: "
        connect
        warm
        a epcreate e
        a epadd e s IN
        a timed 80 epwait e 4 80
        a timed 80 eppwait e 4 80
        a timed 80 eppwait2 e 4 80
        a timed 80 poll s:IN 80
        a timed 80 select r=s 80
        a epwait e 4 0
        a eppwait2 e 4 0
        b &w sleep 0
        b join w
    ";
    level_triggered: "
        connect
        warm
        a epcreate e
        a epadd e s IN
        a epwait e 4 0
        b send s 10
        a epwait e 4 5000
        a epwait e 4 5000
        a recv s 5
        a epwait e 4 0
        a recv s 5
        a epwait e 4 0
        a epmod e s IN|OUT
        a epwait e 4 0
        a epmod e s -
        b send s 1
        a await s 1
        a epwait e 4 0
        a epmod e s IN
        a epwait e 4 0
        a epdel e s
        a epwait e 4 0
        a epmod e s IN
        a epdel e s
        a epadd e s IN
        a epadd e s IN
        a epwait e 4 0
    ";
    edge_triggered: "
        !warm
        connect
        warm
        a epcreate e
        a epadd e s IN|ET
        a epwait e 4 0
        b send s 10
        a epwait e 4 5000
        a epwait e 4 0
        a recv s 5
        a epwait e 4 0
        b send s 5
        a await s 10
        a epwait e 4 0
        a epwait e 4 0
        a recv s 100
        a recv s 100 DONTWAIT
        a epwait e 4 0
        b send s 1
        a epwait e 4 5000
        a epmod e s IN|ET
        a epwait e 4 0
        a epwait e 4 0
        a epmod e s IN|OUT|ET
        a epwait e 4 0
        a epwait e 4 0
    ";
    edge_triggered_reader_gets_everything: "
        connect
        a epcreate e
        a epadd e s IN|ET
        warm
        a &r epreaders e s 1 400000
        b sendall s 400000 3333
        a join r
    ";
    edge_triggered_writer_is_woken: "
        connect
        warm
        a epcreate e
        a epadd e s OUT|ET
        a epwait e 4 5000
        a fill s
        a epwait e 4 0
        a &p epwait e 4 -1
        a blocked p
        b drain s a $filled
        a join p
        a send s 10 DONTWAIT
        b recvall s 10 a
    ";
    level_triggered_writer_is_woken: "
        connect
        warm
        a epcreate e
        a epadd e s OUT
        a epwait e 4 0
        a fill s
        a epwait e 4 0
        a poll s:OUT 0
        a select w=s 0
        a &p epwait e 4 -1
        a blocked p
        b drain s a $filled
        a join p
        a poll s:OUT 5000
        a select w=s 5000
    ";
    a_blocked_poll_for_room_is_woken: "
        connect
        warm
        a fill s
        a &p poll s:OUT -1
        a &q select w=s -1
        a blocked p
        a blocked q
        b drain s a $filled
        a join p
        a join q
    ";
    one_shot: "
        connect
        warm
        a epcreate e
        a epadd e s IN|ONESHOT
        b send s 10
        a epwait e 4 5000
        a epwait e 4 0
        b send s 10
        a await s 20
        a epwait e 4 0
        a epmod e s IN|ONESHOT
        a epwait e 4 5000
        a epwait e 4 0
        a recv s 100
        a epmod e s IN|ONESHOT
        a epwait e 4 0
        a &p epwait e 4 -1
        a blocked p
        b send s 3
        a join p
        a epwait e 4 0
        a epmod e s IN|OUT|ONESHOT
        a epwait e 4 0
        a epwait e 4 0
        b close s
        a sleep 20
        a epwait e 4 0
    ";
    end_and_hangup_masks: "
        connect
        warm
        a epcreate e
        a epadd e s IN|OUT|RDHUP
        a epwait e 4 0
        b shutdown s WR
        a await s 0 RDHUP
        a epwait e 4 0
        a poll s:IN|OUT|RDHUP|PRI 0
        a poll s:- 0
        a poll s:IN 0
        a select r=s w=s e=s 0
        a recv s 10
        a epwait e 4 0
        a shutdown s WR
        a await s 0 HUP
        a epwait e 4 0
        a poll s:- 0
        a epmod e s -
        a epwait e 4 0
        b await s 0 HUP
        b poll s:IN|OUT|RDHUP 0
    ";
    the_end_wakes_waiters: "
        connect
        warm
        a epcreate e
        a epadd e s RDHUP
        a &p epwait e 4 -1
        a &q poll s:RDHUP -1
        a &r select r=s -1
        a blocked p
        a blocked q
        a blocked r
        b shutdown s WR
        a join p
        a join q
        a join r
    ";
    the_end_after_data_wakes_waiters_once_more: "
        connect
        warm
        a epcreate e
        a epadd e s IN|RDHUP|ET
        b send s 10
        a await s 10
        a epwait e 4 5000
        b shutdown s WR
        a await s 10 RDHUP
        a epwait e 4 5000
        a recv s 100
        a recv s 100
    ";
    a_reset_wakes_waiters: "
        connect
        warm
        a epcreate e
        a epadd e s -
        a &p epwait e 4 -1
        a &q poll s:- -1
        a &r poll s:IN -1
        a blocked p
        a blocked q
        a blocked r
        b setsockopt s SO_LINGER 1,0
        b close s
        a join p
        a join q
        a join r
        a await s - ERR
        a epmod e s IN|OUT|RDHUP
        a epwait e 4 0
        a poll s:IN|OUT|RDHUP 0
        a select r=s w=s e=s 0
        a recv s 10
        a epwait e 4 0
        a poll s:IN|OUT|RDHUP 0
        a recv s 10
        a epmod e s -
        a epwait e 4 0
    ";
    unconnected_sockets: "
        a socket s
        a poll s:IN|OUT 0
        a epcreate e
        a epadd e s IN|OUT|RDHUP
        a epwait e 4 0
        a select r=s w=s e=s 0
        a recv s 1 DONTWAIT
        a send s 1 NOSIGNAL
        a bind s 127.0.0.1:0
        a listen s 4
        a poll s:IN|OUT 0
        a epwait e 4 0
        a epmod e s IN|OUT|RDHUP
        a epwait e 4 0
        a recv s 1
        a send s 1 NOSIGNAL
    ";
    listeners_become_readable: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        b epcreate e
        b epadd e l IN
        b epwait e 4 0
        b poll l:IN|OUT 0
        a socket s
        b &p epwait e 4 -1
        b &q poll l:IN -1
        b blocked p
        b blocked q
        a connect s 127.0.0.1:$l
        b join p
        b join q
        b select r=l w=l 0
        b accept l s
        b epwait e 4 0
        warm
        b epadd e s IN
        a send s 5
        b await s 5
        b epwait e 4 5000
        a socket t
        a connect t 127.0.0.1:$l
        b poll l:IN 5000
        b epwait e 4 0
    ";
    registration_before_connect: "
        b socket l
        b bind l 127.0.0.1:0
        b listen l 16
        a socket s inet NONBLOCK|CLOEXEC
        a epcreate e
        a epadd e s IN|OUT|RDHUP|ET
        a epwait e 4 0
        a connect s 127.0.0.1:$l
        a epwait e 4 5000
        a getsockopt s SO_ERROR
        a connect s 127.0.0.1:$l
        b accept l s
        a epmod e s IN|RDHUP
        a fcntl s GETFL
        a fcntl s GETFD
        a fcntl s SETFL -
        warm
        a fcntl s SETFL NONBLOCK
        a epwait e 4 0
        b send s 5
        a epwait e 4 5000
        a recv s 10
        a recv s 10
        a fcntl s GETFL
        a epmod e s IN|OUT|RDHUP|ET
        a epwait e 4 0
        a epdel e s
    ";
    closing_removes_the_registration: "
        connect
        warm
        connect t
        warm t
        a epcreate e
        a epadd e s IN
        a epadd e t IN
        b send s 5
        b send t 5
        a await s 5
        a await t 5
        a epwait e 4 5000
        a close s
        a epwait e 4 0
        a epdel e s
        a close t
        a epwait e 4 0
    ";
    a_duplicate_keeps_the_registration: "
        connect
        warm
        a epcreate e
        a epadd e s IN
        a dup s d
        a epadd e d IN
        b send s 5
        a await d 5
        a epwait e 4 5000
        a close s
        a epwait e 4 0
        a recv d 3
        a epwait e 4 0
        a recv d 3
        a epwait e 4 0
        b send s 1
        a epwait e 4 5000
        a close d
        a epwait e 4 0
        b poll s:IN 5000
        b recv s 1
    ";
    nested_epoll: "
        connect
        warm
        a epcreate inner
        a epcreate outer
        a epadd inner s IN
        a epadd outer inner IN
        a poll inner:IN 0
        a epwait outer 4 0
        a &p epwait outer 4 -1
        a &q poll inner:IN -1
        a &r select r=inner -1
        a blocked p
        a blocked q
        a blocked r
        b send s 5
        a join p
        a join q
        a join r
        a epwait outer 4 0
        a epwait inner 4 0
        a poll inner:IN|OUT 0
        a recv s 10
        a epwait inner 4 0
        a poll inner:IN 0
        a epwait outer 4 0
        a epadd inner inner IN
        a epadd inner outer IN
    ";
    mixed_with_other_descriptors: "
        connect
        warm
        a pipe r w
        a eventfd v 0
        a epcreate e
        a epadd e s IN
        a epadd e r IN
        a epadd e v IN
        a epwait e 8 0
        a &p epwait e 8 -1
        a blocked p
        a write w 5
        a join p
        a poll s:IN,r:IN,v:IN,w:OUT 0
        a select r=s,r,v w=w 0
        b send s 5
        a await s 5
        a epwait e 8 0
        a read r 10
        a epwait e 8 0
        a recv s 10
        a epwait e 8 0
        a &p poll s:IN,r:IN,v:IN -1
        a blocked p
        a write v 8
        a join p
        a &p poll s:IN,r:IN -1
        a blocked p
        b send s 5
        a join p
        a recv s 10
        a &p select r=s,r -1
        a blocked p
        a write w 5
        a join p
    ";
    many_descriptors_in_poll: "
        connect
        warm
        a pollmany s 1 0
        a pollmany s 2 0
        b send s 5
        a await s 5
        a pollmany s 1 0
        a pollmany s 2 0
        a pollmany s 1025 0
        a pollmany s 4096 -1
        a recv s 5
        a &p pollmany s 1025 -1
        a blocked p
        b send s 5
        a join p
    ";
    select_near_its_limit: "
        connect
        warm
        a dupfd s d 1000
        a select r=d w=d 0
        b send s 5
        a select r=d -1
        a recv d 10
        a select r=d,s w=d,s 0
    ";
    several_streams_in_one_set: "
        connect
        warm
        connect t
        warm t
        connect u
        warm u
        a epcreate e
        a epadd e s IN
        a epadd e t IN
        a epadd e u IN|OUT
        a epwait e 8 0
        b send s 1
        b send t 2
        a await s 1
        a await t 2
        a epwait e 8 0
        a epwait e 8 5000
        a poll s:IN,t:IN|OUT,u:IN 0
        a select r=s,t,u w=t 0
        a recv t 10
        a poll s:IN,t:IN|OUT,u:IN 0
        b shutdown u WR
        a await u 0 RDHUP
        a epwait e 8 0
        a epwait e 3 0
        a send u 5
        b recv u 5
        a recv s 10
        b send s 4
        a await s 4
        a epwait e 8 0
    ";
    events_come_round_with_a_small_array: "
        connect
        warm
        a epcreate e
        a epadd e s IN|OUT
        b send s 5
        a await s 5
        a epwait e 1 0
        a epwait e 1 0
        a wrongwait wait-0 e
        a wrongwait wait-negative e
        a wrongwait wait-null e
        a epwait s 1 0
        a epadd s e IN
        a wrongwait ctl-null e s
        a wrongwait ctl-command e s
        a wrongwait del-null e s
        a wrongwait del-null e s
        a wrongwait create-0
        a wrongwait create1-flags
        a wrongwait poll-null
        a wrongwait ppoll-time
        a wrongwait select-negative
        a epadd e #777 IN
        a epwait #777 1 0
        a devnull n
        a epadd e n IN
        a file f 10
        a epadd e f IN
    ";
    four_threads_on_one_epoll_descriptor: "
        connect
        warm
        a epcreate e
        a epadd e s IN|EXCLUSIVE
        a &r epreaders e s 4 200000
        b sendall s 200000 500
        a join r
    ";
    four_threads_on_one_edge_triggered_epoll_descriptor: "
        connect
        warm
        a epcreate e
        a epadd e s IN|ET
        a &r epreaders e s 4 200000
        b sendall s 200000 500
        a join r
    ";
    four_threads_with_one_shot: "
        connect
        warm
        a epcreate e
        a epadd e s IN|ONESHOT
        a &r epreaders e s 4 200000 IN|ONESHOT
        b sendall s 200000 500
        a join r
    ";
    one_event_wakes_one_thread: "
        !warm
        connect
        warm
        a epcreate e
        a epadd e s IN|ET
        a &p epwait e 4 300
        a blocked p
        a &q epwait e 4 300
        a blocked q
        a &w epwait e 4 -1
        a join p
        a join q
        a blocked w
        b send s 5
        a join w
        a epwait e 4 50
    ";
    exclusive_rules: "
        connect
        warm
        a epcreate e
        a epadd e s IN|EXCLUSIVE
        a epmod e s IN
        a epmod e s IN|EXCLUSIVE
        a epdel e s
        a epadd e s IN|RDHUP|EXCLUSIVE
        a epadd e s IN|OUT|ET|EXCLUSIVE
        a epwait e 4 0
        b send s 1
        a await s 1
        a epwait e 4 0
    ";
    changes_from_another_thread_reach_a_waiter: "
        connect
        warm
        b send s 5
        a await s 5
        a epcreate e
        a &p epwait e 4 -1
        a blocked p
        a epadd e s IN
        a join p
        a epmod e s -
        a &p epwait e 4 -1
        a blocked p
        a epmod e s OUT
        a join p
        a epmod e s -
        a &p epwait e 4 200
        a blocked p
        a epdel e s
        a join p
    ";
    one_stream_in_two_epoll_descriptors: "
        connect
        warm
        a epcreate e
        a epcreate f
        a epadd e s IN
        a epadd f s IN|OUT
        a &p epwait e 4 -1
        a blocked p
        b send s 5
        a join p
        a epwait f 4 0
        a epdel e s
        a epwait e 4 0
        a epwait f 4 0
        a close e
        a epwait f 4 0
    ";
    interrupted_waits: "
        connect
        warm
        a handle USR1 restart
        a epcreate e
        a epadd e s IN
        a &p epwait e 4 -1
        a blocked p
        a signal p USR1
        a join p
        a &p poll s:IN -1
        a blocked p
        a signal p USR1
        a join p
        a &p ppoll s:IN 20000
        a blocked p
        a signal p USR1
        a join p
        a &p select r=s -1
        a blocked p
        a signal p USR1
        a join p
        a &p eppwait2 e 4 20000
        a blocked p
        a signal p USR1
        a join p
        a caught
        b send s 1
        a epwait e 4 5000
    ";
    interrupted_transfers: "
        connect
        warm
        a handle USR1 interrupt
        a handle USR2 restart
        a &r recv s 10
        a blocked r
        a signal r USR1
        a join r
        a &r read s 10
        a blocked r
        a signal r USR2
        a blocked r
        a caught
        b send s 4
        a join r
        a &r recv s 10 WAITALL
        a blocked r
        b send s 4
        sleep 30
        a blocked r
        a signal r USR1
        a join r
        a caught
    ";
    interrupted_send: "
        connect
        warm
        a handle USR1 interrupt
        a handle USR2 restart
        a fill s
        a &w sendall s 8000000 8000000
        a blocked w
        a signal w USR2
        sleep 30
        a blocked w
        b drain s a $filled
        b recvall s 8000000 a
        a join w
        a caught
    ";
    a_time_out_makes_signals_interrupt: "
        connect
        warm
        a handle USR2 restart
        a setsockopt s SO_RCVTIMEO 20000
        a &r recv s 10
        a blocked r
        a signal r USR2
        a join r
        a setsockopt s SO_RCVTIMEO 0
        a &r recv s 10
        a blocked r
        a signal r USR2
        a blocked r
        b send s 3
        a join r
        a caught
    ";
    signal_masks_hold_during_the_wait: "
        connect
        warm
        a handle USR1 restart
        a block USR1
        a raise USR1
        a caught
        a epcreate e
        a epadd e s IN
        a eppwait e 4 5000 none
        a caught
        a raise USR1
        a ppoll s:IN 5000 none
        a caught
        a raise USR1
        a pselect r=s 5000 none
        a caught
        a raise USR1
        a eppwait2 e 4 5000 none
        a caught
        a raise USR1
        a eppwait e 4 50 USR1
        a ppoll s:IN 50
        a caught
        b send s 1
        a await s 1
        a ppoll s:IN 5000 USR1
        a unblock USR1
        a caught
    ";
    readable_means_as_much_as_the_low_water_mark: "
        connect
        warm
        a setsockopt s SO_RCVLOWAT 10
        a getsockopt s SO_RCVLOWAT
        b send s 5
        a await s 5
        a poll s:IN 30
        a epcreate e
        a epadd e s IN
        a epwait e 4 30
        a recv s 100 DONTWAIT
        b send s 9
        a await s 9
        a poll s:IN 30
        b send s 1
        a poll s:IN 5000
        a epwait e 4 5000
        a &r recv s 20
        a join r
        a &r recv s 20
        a blocked r
        b send s 4
        sleep 30
        a running r
        b send s 6
        a join r
        b send s 3
        a await s 3
        a setsockopt s SO_RCVLOWAT 1
        a poll s:IN 5000
        a setsockopt s SO_RCVLOWAT 10
        b shutdown s WR
        a poll s:IN 5000
        a recv s 100
    ";
    two_streams_talk_through_two_epolls_of_one_process: "
        connect
        warm
        a epcreate e
        b epcreate e
        a epadd e s IN
        b epadd e s IN
        a &p epwait e 4 -1
        b &p epwait e 4 -1
        a blocked p
        b blocked p
        a send s 5
        b join p
        b recv s 5
        b send s 5
        a join p
        a recv s 5
        a epwait e 4 0
        b epwait e 4 0
    ";
    reconnecting_sleeps_again: "
        connect
        warm
        b epcreate e
        b epadd e l IN
        b epadd e s IN|RDHUP
        a close s
        b epwait e 4 5000
        b recv s 10
        b close s
        b epwait e 4 0
        connect t
        warm t
        b epadd e t IN|RDHUP
        b timed 50 epwait e 4 50
        a send t 5
        b epwait e 4 5000
        b recv t 10
        b timed 50 epwait e 4 50
    ";
}
