/* A call that succeeds leaves errno alone, one that fails says why; arguments of variadic calls arrive. */
#include "check.h"

/* Each of these succeeds, with errno at 77 before and after. */
#define KEEPS(call)                                                                                                    \
    do {                                                                                                               \
        errno = 77;                                                                                                    \
        CHECK((call) >= 0);                                                                                            \
        CHECK(errno == 77);                                                                                            \
    } while (0)
/* Each of these fails with this errno. */
#define FAILS(call, why)                                                                                               \
    do {                                                                                                               \
        errno = 77;                                                                                                    \
        CHECK((call) == -1);                                                                                           \
        CHECK(errno == (why));                                                                                         \
    } while (0)

static void successes(void)
{
    int ends[2], pipes[2], fd, n, flags;
    char byte = 'x';
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    pair(ends);
    CHECK(pipe(pipes) == 0);
    struct pollfd p = { .fd = ends[1], .events = POLLIN };
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = 5 };
    struct timeval none = { 0, 0 };
    fd_set set;

    for (int round = 0; round < 40; round++) {
        KEEPS(send(ends[0], &byte, 1, 0));
        KEEPS(recv(ends[1], &byte, 1, 0));
        KEEPS(write(ends[0], &byte, 1));
        KEEPS(read(ends[1], &byte, 1));
        KEEPS(write(pipes[1], &byte, 1));
        KEEPS(read(pipes[0], &byte, 1));
        KEEPS(poll(&p, 1, 0));
        KEEPS(fcntl(ends[0], F_GETFL));
        KEEPS(getpeername(ends[0], (struct sockaddr *)&address, &len));
    }
    KEEPS(fd = epoll_create1(EPOLL_CLOEXEC));
    KEEPS(epoll_ctl(fd, EPOLL_CTL_ADD, ends[1], &event));
    KEEPS(epoll_wait(fd, &event, 1, 0));
    KEEPS(close(fd));
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    KEEPS(select(ends[0] + 1, &set, NULL, NULL, &none));
    KEEPS(n = dup(ends[0]));
    KEEPS(dup2(ends[1], n));
    KEEPS(close(n));
    KEEPS(ioctl(ends[0], FIONREAD, &n));
    CHECK(n == 0);
    n = 1;
    KEEPS(ioctl(ends[0], FIONBIO, &n));
    KEEPS(flags = fcntl(ends[0], F_GETFL));
    CHECK(flags & O_NONBLOCK);
    FAILS(recv(ends[0], &byte, 1, 0), EAGAIN);
    KEEPS(fcntl(ends[0], F_SETFL, flags & ~O_NONBLOCK));
    CHECK(!(fcntl(ends[0], F_GETFL) & O_NONBLOCK));
    KEEPS(fd = fcntl(ends[0], F_DUPFD_CLOEXEC, 500));
    CHECK(fd >= 500 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    KEEPS(fcntl(fd, F_SETFD, 0));
    CHECK(fcntl(fd, F_GETFD) == 0);
    KEEPS(ioctl(fd, FIOCLEX));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    KEEPS(close(fd));
    FILE *file = tmpfile();
    CHECK(file != NULL);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 4 };
    KEEPS(fcntl(fileno(file), F_SETLK, &lock));
    KEEPS(fclose(file));
    char memory[8];
    CHECK((file = fmemopen(memory, sizeof memory, "w")) != NULL);
    KEEPS(fclose(file)); /* a FILE without a descriptor */
    KEEPS(shutdown(ends[0], SHUT_WR));
    KEEPS(recv(ends[1], &byte, 1, 0));
    KEEPS(close(ends[0]));
    KEEPS(close(ends[1]));
}

static void failures(void)
{
    int ends[2], fd, one = 1;
    struct pollfd *volatile nothing = NULL; /* or the compiler complains */
    volatile int minus = -1;
    char byte = 0;
    socklen_t len = sizeof one;
    struct sockaddr_in address = { .sin_family = AF_INET };
    struct epoll_event event = { 0 };
    pair(ends);

    FAILS(close(-1), EBADF);
    FAILS(read(9999, &byte, 1), EBADF);
    FAILS(write(-5, &byte, 1), EBADF);
    FAILS(recv(9999, &byte, 1, 0), EBADF);
    FAILS(recv(STDIN_FILENO, &byte, 1, 0), ENOTSOCK);
    FAILS(dup2(9999, ends[0]), EBADF); /* and ends[0] is still open */
    FAILS(dup3(ends[0], ends[0], 0), EINVAL);
    CHECK(dup2(ends[0], ends[0]) == ends[0]);
    FAILS(fcntl(ends[0], 9999), EINVAL);
    FAILS(ioctl(ends[0], 0xdead, &byte), ENOTTY);
    FAILS(getsockopt(ends[0], SOL_SOCKET, 9999, &one, &len), ENOPROTOOPT);
    FAILS(setsockopt(ends[0], 9999, 1, &one, sizeof one), ENOPROTOOPT);
    FAILS(socket(9999, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(accept(ends[0], NULL, NULL), EINVAL);
    FAILS(connect(ends[0], (struct sockaddr *)&address, sizeof address), EISCONN);
    FAILS(epoll_create(0), EINVAL);
    FAILS(epoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event), EINVAL);
    FAILS(epoll_wait(9999, &event, 1, 0), EBADF);
    FAILS(poll(nothing, 1, 0), EFAULT);
    FAILS(select(-1, NULL, NULL, NULL, NULL), EINVAL);
    FAILS(readv(ends[0], NULL, minus), EINVAL);
    FAILS(pread(ends[0], &byte, 1, 0), ESPIPE);
    FAILS(lseek(ends[0], 0, SEEK_SET), ESPIPE);
    struct timeval negative = { -1, 0 };
    FAILS(select(0, NULL, NULL, NULL, &negative), EINVAL);
    struct timespec odd = { 0, -1 };
    struct pollfd p = { .fd = ends[0], .events = POLLIN };
    FAILS(ppoll(&p, 1, &odd, NULL), EINVAL);
    exchange(ends, 20);
    CHECK((fd = dup(ends[0])) >= 0);
    CHECK(close(fd) == 0);
    FAILS(close(fd), EBADF);
    exchange(ends, 20);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    successes();
    failures();
    puts("ok");
    return 0;
}
