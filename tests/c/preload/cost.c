/* What a call on a descriptor that rsock has nothing to do with costs: nanoseconds, the best of many short rounds.
 * Run plain and preloaded by scripts/call-cost. */
#include "check.h"
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define MEASURE(name, calls, work)                                                                                     \
    do {                                                                                                               \
        double best = 1e18;                                                                                            \
        for (int round = 0; round < rounds; round++) {                                                                 \
            double begin = now();                                                                                      \
            for (int i = 0; i < 2000; i++)                                                                             \
                work;                                                                                                  \
            double took = (now() - begin) / 2000 / (calls);                                                            \
            if (took < best)                                                                                           \
                best = took;                                                                                           \
        }                                                                                                              \
        printf("%s\t%.1f\n", name, best);                                                                              \
    } while (0)

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    char byte = 0;
    int pipes[2], null = open("/dev/null", O_RDWR), file = fileno(tmpfile());
    struct pollfd two[2];
    CHECK(null >= 0 && file >= 0 && pipe(pipes) == 0);
    CHECK(write(file, &byte, 1) == 1);
    two[0] = (struct pollfd){ .fd = pipes[0], .events = POLLIN };
    two[1] = (struct pollfd){ .fd = pipes[1], .events = POLLOUT };

    MEASURE("read of /dev/null", 1, CHECK(read(null, &byte, 1) == 0));
    MEASURE("write to /dev/null", 1, CHECK(write(null, &byte, 1) == 1));
    MEASURE("read at the end of a file", 1, CHECK(read(file, &byte, 1) == 0));
    MEASURE("write and read of a pipe, each", 2, {
        CHECK(write(pipes[1], &byte, 1) == 1);
        CHECK(read(pipes[0], &byte, 1) == 1);
    });
    MEASURE("dup and close of a file, each", 2, CHECK(close(dup(file)) == 0));
    MEASURE("close of nothing", 1, CHECK(close(-1) == -1));
    MEASURE("fcntl of a file", 1, CHECK(fcntl(file, F_GETFD) == 0));
    MEASURE("poll of two pipe ends", 1, CHECK(poll(two, 2, 0) == 1));
    return 0;
}
