/* Calls by number, through syscall(2), on the same streams as calls by name. */
#include "check.h"
#include <sys/mman.h>
#include <sys/syscall.h>

int main(void)
{
    int ends[2];
    char buffer[64], byte;
    pair(ends);
    exchange(ends, 40);

    char *page = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    page[4095] = 1; /* all six arguments arrived */

    for (int i = 0; i < 40; i++) {
        CHECK(syscall(SYS_sendto, ends[0], "abc", 3, 0, NULL, 0) == 3);
        CHECK(recv(ends[1], buffer, 3, MSG_WAITALL) == 3 && memcmp(buffer, "abc", 3) == 0);
        CHECK(send(ends[1], "defg", 4, 0) == 4);
        CHECK(syscall(SYS_read, ends[0], buffer, 4) == 4 && memcmp(buffer, "defg", 4) == 0);
        CHECK(syscall(SYS_write, ends[1], "h", 1) == 1);
        struct msghdr m = { .msg_iov = &(struct iovec){ &byte, 1 }, .msg_iovlen = 1 };
        CHECK(syscall(SYS_recvmsg, ends[0], &m, 0) == 1 && byte == 'h');
    }
    int copy = (int)syscall(SYS_dup, ends[0]);
    CHECK(copy >= 0);
    CHECK(syscall(SYS_close, ends[0]) == 0);
    ends[0] = copy;
    exchange(ends, 40);
    CHECK(syscall(SYS_fcntl, copy, F_SETFL, O_NONBLOCK) == 0);
    errno = 0;
    CHECK(syscall(SYS_recvfrom, copy, buffer, 1, 0, NULL, NULL) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_close, 9999) == -1 && errno == EBADF);
    CHECK(syscall(-5) == -1 && errno == ENOSYS);
    puts("ok");
    return 0;
}
