/* Programs close everything that they did not open; the lowest free number is theirs. */
#include "check.h"

static void by_close(int first)
{
    for (int fd = first; fd < 1024; fd++)
        close(fd);
}
static void by_closefrom(int first) { closefrom(first); }
static void by_close_range(int first) { CHECK(close_range((unsigned)first, ~0U, 0) == 0); }
static void by_cloexec(int first)
{
    CHECK(close_range((unsigned)first, ~0U, CLOSE_RANGE_CLOEXEC) == 0);
    by_close(first);
}
static void by_dup2(int first)
{
    int null = open("/dev/null", O_RDWR);
    CHECK(null >= 0);
    for (int fd = first; fd < 1024; fd++)
        if (fd != null)
            CHECK(dup2(null, fd) == fd);
    CHECK(close_range((unsigned)first, ~0U, 0) == 0);
}

int main(void)
{
    void (*const ways[])(int) = { by_close, by_closefrom, by_close_range, by_cloexec, by_dup2 };
    int lost[2], ends[2];
    pair(lost);
    exchange(lost, 40);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        ways[i](3);
        char byte;
        CHECK(recv(lost[0], &byte, 1, 0) == -1 && errno == EBADF);
        pair(ends);
        printf("%d %d\n", ends[0], ends[1]);
        exchange(ends, 40);
        memcpy(lost, ends, sizeof lost);
    }
    return 0;
}
