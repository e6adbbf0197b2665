/* What a program built with -D_FORTIFY_SOURCE calls when the compiler knows the buffer and not the length: the same as the
 * plain call, and the end of the program where the length is too large. */
#include "check.h"

static volatile size_t fits = 4, too_many = 64;
static int ends[2];

static void by_read(size_t n) { char b[4]; CHECK(read(ends[1], b, n) == 4 && memcmp(b, "data", 4) == 0); }
static void by_recv(size_t n) { char b[4]; CHECK(recv(ends[1], b, n, 0) == 4 && memcmp(b, "data", 4) == 0); }
static void by_recvfrom(size_t n)
{
    char b[4];
    CHECK(recvfrom(ends[1], b, n, 0, NULL, NULL) == 4 && memcmp(b, "data", 4) == 0);
}
static void by_poll(size_t n)
{
    struct pollfd p[4] = { { .fd = ends[1], .events = POLLIN }, { .fd = -1 }, { .fd = -1 }, { .fd = -1 } };
    CHECK(poll(p, n, -1) == 1);
    by_read(fits);
}
static void by_ppoll(size_t n)
{
    struct pollfd p[4] = { { .fd = ends[1], .events = POLLIN }, { .fd = -1 }, { .fd = -1 }, { .fd = -1 } };
    CHECK(ppoll(p, n, NULL, NULL) == 1);
    by_read(fits);
}

int main(void)
{
    void (*const ways[])(size_t) = { by_read, by_recv, by_recvfrom, by_poll, by_ppoll };
    pair(ends);
    exchange(ends, 40);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        CHECK(send(ends[0], "data", 4, 0) == 4);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            ways[i](too_many);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        printf("%zu: signal %d\n", i, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        ways[i](fits);
    }
    CHECK(dprintf(ends[0], "%s", "data") == 4); /* __dprintf_chk */
    by_read(fits);
    return 0;
}
