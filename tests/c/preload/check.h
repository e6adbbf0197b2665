/* For the programs here: they are run plain and over librsock.so, must end with 0, and print the same. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the program with the place and errno if `what` does not hold. */
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #what, errno, strerror(errno));          \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* A TCP listener on a free port of the loopback. */
__attribute__((unused)) static int listener(struct sockaddr_in *address)
{
    socklen_t len = sizeof *address;
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)address, len) == 0);
    CHECK(listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address, &len) == 0);
    return fd;
}

/* Both ends of a TCP connection. */
__attribute__((unused)) static void pair(int ends[2])
{
    struct sockaddr_in address;
    int door = listener(&address);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(ends[0] >= 0);
    CHECK(connect(ends[0], (struct sockaddr *)&address, sizeof address) == 0);
    ends[1] = accept(door, NULL, NULL);
    CHECK(ends[1] >= 0);
    CHECK(close(door) == 0);
}

/* `rounds` messages there and back: enough of them, and the streams are where the policy wants them. */
__attribute__((unused)) static void exchange(const int ends[2], int rounds)
{
    char buffer[64];
    for (int i = 0; i < rounds; i++)
        for (int from = 0; from < 2; from++) {
            snprintf(buffer, sizeof buffer, "message %d from %d", i, from);
            ssize_t n = (ssize_t)strlen(buffer) + 1;
            char got[64];
            CHECK(send(ends[from], buffer, (size_t)n, 0) == n);
            CHECK(recv(ends[!from], got, (size_t)n, MSG_WAITALL) == n);
            CHECK(strcmp(buffer, got) == 0);
        }
}

/* Waits for a child and checks that it ended with 0. */
__attribute__((unused)) static void reap(pid_t child)
{
    int status;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif
