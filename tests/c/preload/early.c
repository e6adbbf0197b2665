/* A library whose constructor uses sockets, and forks, before the program (and perhaps other libraries) is set up; and
 * whose destructor still uses one. Built both as that library (-DLIBRARY -shared) and as the program on it. */
#include "check.h"

#ifdef LIBRARY
int early_ends[2];

__attribute__((constructor)) static void early(void)
{
    char *const argv[] = { "true", NULL };
    pair(early_ends);
    exchange(early_ends, 40);
    int queue = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    CHECK(queue >= 0);
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, early_ends[0], &event) == 0);
    CHECK(write(early_ends[1], "x", 1) == 1);
    CHECK(epoll_wait(queue, &event, 1, -1) == 1);
    char byte;
    CHECK(readv(early_ends[0], &(struct iovec){ &byte, 1 }, 1) == 1);
    CHECK(fcntl(queue, F_GETFD) == 0);
    CHECK(close(queue) == 0);
    pid_t child = fork();
    if (child == 0) {
        execv("/bin/true", argv);
        _exit(1);
    }
    reap(child);
}

__attribute__((destructor)) static void late(void)
{
    exchange(early_ends, 40);
    CHECK(close(early_ends[0]) == 0);
    CHECK(close(early_ends[1]) == 0);
    if (write(STDOUT_FILENO, "late\n", 5) != 5)
        _exit(1);
}
#else
extern int early_ends[2];

int main(void)
{
    exchange(early_ends, 40);
    puts("ok");
    return 0;
}
#endif
