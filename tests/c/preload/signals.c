/* Signal handlers: what sigaction says, EINTR or not, and handlers that come at any moment, use the stream, or leave it by
 * siglongjmp. */
#include "check.h"
#include <setjmp.h>
#include <sys/time.h>

static int ends[2];
static volatile sig_atomic_t ran, value, sent;
static sigjmp_buf away;

static void count(int number) { (void)number; ran++; }
static void note(int number, siginfo_t *info, void *context)
{
    (void)number;
    CHECK(context != NULL);
    value = info->si_value.sival_int;
    ran++;
}
static void leave(int number)
{
    (void)number;
    siglongjmp(away, 1);
}
/* On the very stream that it may have interrupted a call on. */
static void send_one(int number)
{
    (void)number;
    int before = errno;
    if (send(ends[0], "!", 1, MSG_DONTWAIT) == 1)
        sent++;
    errno = before;
}

static void handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void what_sigaction_says(void)
{
    struct sigaction old, wanted = { .sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART };
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
    sigaddset(&wanted.sa_mask, SIGUSR2);
    CHECK(sigaction(SIGUSR1, &wanted, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0);
    CHECK(old.sa_sigaction == note && sigismember(&old.sa_mask, SIGUSR2) == 1);
    printf("flags %x\n", (unsigned)old.sa_flags & ~0x04000000U); /* SA_RESTORER is libc's business */
    CHECK(sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 4711 }) == 0);
    CHECK(ran == 1 && value == 4711);

    CHECK((uintptr_t)signal(SIGUSR1, count) == (uintptr_t)note);
    CHECK(signal(SIGUSR1, count) == count);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == count);
    printf("flags %x, masks itself: %d\n", (unsigned)old.sa_flags & ~0x04000000U, sigismember(&old.sa_mask, SIGUSR1));
    CHECK(raise(SIGUSR1) == 0 && ran == 2);
    CHECK(signal(SIGUSR1, SIG_IGN) == count);
    CHECK(raise(SIGUSR1) == 0 && ran == 2);
    CHECK(signal(SIGUSR1, SIG_DFL) == SIG_IGN);

    handle(SIGUSR1, count, (int)SA_RESETHAND);
    CHECK(raise(SIGUSR1) == 0 && ran == 3);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);

    errno = 0;
    CHECK(sigaction(SIGKILL, &wanted, NULL) == -1 && errno == EINVAL);
    CHECK(sigaction(65, &wanted, NULL) == -1 && errno == EINVAL);
    CHECK(signal(SIGSTOP, count) == SIG_ERR && errno == EINVAL);
    CHECK(sigaction(SIGSEGV, &wanted, NULL) == 0 && sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == note);
    ran = 0;
}

static void after(long microseconds)
{
    struct itimerval once = { .it_value.tv_usec = microseconds };
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

static void storm(long microseconds)
{
    struct itimerval often = { { 0, microseconds }, { 0, microseconds } };
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static volatile int returned;

/* Sends a byte when the call has returned, or has met so many signals that it will not return for one. */
static void *send_later(void *unused)
{
    while (!returned && ran < 10)
        usleep(5000);
    CHECK(send(ends[1], "x", 1, 0) == 1);
    return unused;
}

static int by_recv(void) { char byte; return (int)recv(ends[0], &byte, 1, 0); }
static int by_poll(void) { return poll(&(struct pollfd){ .fd = ends[0], .events = POLLIN }, 1, -1); }
static int by_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    return select(ends[0] + 1, &set, NULL, NULL, NULL);
}
static int by_epoll(void)
{
    struct epoll_event event = { .events = EPOLLIN };
    int queue = epoll_create1(0);
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, ends[0], &event) == 0);
    int result = epoll_wait(queue, &event, 1, -1), why = errno;
    CHECK(close(queue) == 0);
    errno = why;
    return result;
}

/* Each is interrupted, and gets a byte later. */
static void interruptions(void)
{
    static const struct {
        const char *name;
        int (*block)(void);
    } ways[] = { { "recv", by_recv }, { "poll", by_poll }, { "select", by_select }, { "epoll_wait", by_epoll } };
    for (int restart = 0; restart < 2; restart++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            pthread_t id;
            sigset_t alarms;
            handle(SIGALRM, count, restart ? SA_RESTART : 0);
            sigemptyset(&alarms);
            sigaddset(&alarms, SIGALRM);
            CHECK(pthread_sigmask(SIG_BLOCK, &alarms, NULL) == 0);
            CHECK(pthread_create(&id, NULL, send_later, NULL) == 0);
            CHECK(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL) == 0);
            ran = returned = 0;
            storm(20000);
            errno = 0;
            int result = ways[i].block(), why = errno;
            storm(0);
            returned = 1;
            printf("%s, %s: %d %s\n", ways[i].name, restart ? "SA_RESTART" : "no flag", result,
                   result < 0 ? strerror(why) : "");
            CHECK(ran >= 1);
            CHECK(pthread_join(id, NULL) == 0);
            if (result < 0 || ways[i].block != by_recv)
                CHECK(by_recv() == 1);
        }
    /* With a time-out a call is never restarted. */
    struct timeval limit = { .tv_sec = 10 };
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    storm(20000);
    CHECK(by_recv() == -1);
    int why = errno;
    storm(0);
    printf("recv with SO_RCVTIMEO, SA_RESTART: %s\n", strerror(why));
    limit.tv_sec = 0;
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
}

/* Handlers in the middle of calls: nothing is lost or doubled. */
static void storms(void)
{
    handle(SIGALRM, count, SA_RESTART);
    storm(100);
    for (int i = 0; i < 50; i++)
        exchange(ends, 40);
    storm(0);

    sent = 0;
    handle(SIGALRM, send_one, SA_RESTART);
    storm(200);
    int marks = 0;
    for (unsigned i = 0; i < 20000; i++) {
        unsigned char out = (unsigned char)(i % 200), in;
        if (out == '!')
            continue;
        CHECK(send(ends[0], &out, 1, 0) == 1);
        do {
            CHECK(recv(ends[1], &in, 1, 0) == 1);
            marks += in == '!';
        } while (in == '!');
        CHECK(in == out);
    }
    storm(0);
    for (char in; recv(ends[1], &in, 1, MSG_DONTWAIT) == 1; marks++)
        CHECK(in == '!');
    CHECK(marks == sent && sent > 0);

    /* Out of a call that has nothing to give, at any of its points. */
    handle(SIGALRM, leave, SA_NODEFER);
    for (volatile int i = 0; i < 200; i++) {
        char byte;
        if (sigsetjmp(away, 1) == 0) {
            after(20 + i * 7);
            for (;;)
                CHECK(recv(ends[0], &byte, 1, i & 1 ? MSG_DONTWAIT : 0) == -1);
        }
        if (i % 10 == 0)
            exchange(ends, 40);
    }
    exchange(ends, 40);
}

int main(void)
{
    pair(ends);
    exchange(ends, 40);
    what_sigaction_says();
    interruptions();
    storms();
    puts("ok");
    return 0;
}
