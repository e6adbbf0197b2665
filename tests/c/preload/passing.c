/* A stream that changes its process: in a message, or as the standard input and output of the next program. */
#include "check.h"

static void give(int door, int fd)
{
    union { char space[CMSG_SPACE(sizeof fd)]; struct cmsghdr header; } control = { .space = "" };
    struct msghdr m = { .msg_iov = &(struct iovec){ "x", 1 }, .msg_iovlen = 1, .msg_control = &control,
                        .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    CHECK(sendmsg(door, &m, 0) == 1);
}

static int take(int door)
{
    char byte;
    int fd;
    union { char space[CMSG_SPACE(sizeof fd)]; struct cmsghdr header; } control;
    struct msghdr m = { .msg_iov = &(struct iovec){ &byte, 1 }, .msg_iovlen = 1, .msg_control = &control,
                        .msg_controllen = sizeof control };
    CHECK(recvmsg(door, &m, MSG_CMSG_CLOEXEC) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

/* Answers messages until the end. */
static void echo(int fd)
{
    char buffer[64];
    for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;)
        CHECK(send(fd, buffer, (size_t)n, 0) == n);
    _exit(0);
}

static void talk(int fd)
{
    char in[8], out[8] = "talking";
    for (int i = 0; i < 40; i++) {
        CHECK(send(fd, out, sizeof out, 0) == sizeof out);
        CHECK(recv(fd, in, sizeof in, MSG_WAITALL) == sizeof in);
        CHECK(memcmp(in, out, sizeof in) == 0);
    }
}

static void by_message(void)
{
    int ends[2], doors[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, doors) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(doors[0]) == 0);
        echo(take(doors[1]));
    }
    pair(ends);
    exchange(ends, 40);
    give(doors[0], ends[1]);
    CHECK(close(ends[1]) == 0);
    talk(ends[0]);
    CHECK(close(ends[0]) == 0);
    reap(child);
}

/* As inetd: stdio of the next program reads and writes past everybody's symbols. */
static void by_stdio(int exec)
{
    int ends[2];
    pair(ends);
    exchange(ends, 40);
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(ends[0]) == 0);
        CHECK(dup2(ends[1], STDIN_FILENO) == 0 && dup2(ends[1], STDOUT_FILENO) == 1);
        CHECK(close(ends[1]) == 0);
        if (exec) {
            execl("/bin/cat", "cat", NULL);
            _exit(1);
        }
        char line[64];
        while (fgets(line, sizeof line, stdin))
            CHECK(fputs(line, stdout) >= 0 && fflush(stdout) == 0);
        _exit(0);
    }
    CHECK(close(ends[1]) == 0);
    char line[] = "a line\n", back[sizeof line];
    for (int i = 0; i < 40; i++) {
        CHECK(send(ends[0], line, 7, 0) == 7);
        CHECK(recv(ends[0], back, 7, MSG_WAITALL) == 7 && memcmp(line, back, 7) == 0);
    }
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(recv(ends[0], back, 7, 0) == 0);
    CHECK(close(ends[0]) == 0);
    reap(child);
}

int main(void)
{
    by_message();
    by_stdio(0);
    by_stdio(1);
    puts("ok");
    return 0;
}
