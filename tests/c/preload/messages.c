/* recvmmsg, sendmmsg, preadv2, pwritev2, recvfrom's address, accept's address: what TCP makes of each. */
#include "check.h"

#define COUNT 4

static char out[COUNT][8], in[COUNT][8];
static struct iovec out_spans[COUNT], in_spans[COUNT];
static struct mmsghdr outgoing[COUNT], incoming[COUNT];

static void prepare(void)
{
    memset(in, 0, sizeof in);
    for (int i = 0; i < COUNT; i++) {
        snprintf(out[i], sizeof out[i], "part %d", i);
        out_spans[i] = (struct iovec){ out[i], sizeof out[i] };
        in_spans[i] = (struct iovec){ in[i], sizeof in[i] };
        outgoing[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &out_spans[i], .msg_iovlen = 1 } };
        incoming[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &in_spans[i], .msg_iovlen = 1 } };
    }
}

static void batches(const int ends[2])
{
    struct timespec limit = { 10, 0 };
    prepare();
    CHECK(sendmmsg(ends[0], outgoing, COUNT, 0) == COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK(outgoing[i].msg_len == 8);
    CHECK(recvmmsg(ends[1], incoming, COUNT, MSG_WAITALL, &limit) == COUNT);
    CHECK(limit.tv_sec == 9);
    CHECK(memcmp(in, out, sizeof in) == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(incoming[i].msg_len == 8);

    prepare();
    CHECK(sendmmsg(ends[0], outgoing, 2, 0) == 2);
    CHECK(recvmmsg(ends[1], incoming, COUNT, MSG_WAITFORONE | MSG_WAITALL, NULL) == 2);
    CHECK(recvmmsg(ends[1], incoming, COUNT, MSG_DONTWAIT, NULL) == -1 && errno == EAGAIN);
    CHECK(recvmmsg(ends[1], incoming, 0, 0, NULL) == 0);
    limit = (struct timespec){ 0, -1 };
    CHECK(recvmmsg(ends[1], incoming, COUNT, 0, &limit) == -1 && errno == EINVAL);
}

static void vectors(const int ends[2])
{
    char a[3], b[5];
    struct iovec from[] = { { "abc", 3 }, { "defgh", 5 } }, to[] = { { a, 3 }, { b, 5 } };
    CHECK(pwritev2(ends[0], from, 2, -1, 0) == 8);
    CHECK(preadv2(ends[1], to, 2, -1, 0) == 8);
    CHECK(memcmp(a, "abc", 3) == 0 && memcmp(b, "defgh", 5) == 0);
    CHECK(preadv2(ends[1], to, 2, -1, RWF_NOWAIT) == -1 && (errno == EAGAIN || errno == EOPNOTSUPP));
    CHECK(preadv2(ends[1], to, 2, 0, 0) == -1 && errno == ESPIPE);
    CHECK(pwritev(ends[0], from, 2, 0) == -1 && errno == ESPIPE);
}

static void addresses(const int ends[2])
{
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    char byte;
    CHECK(send(ends[0], "x", 1, 0) == 1);
    memset(&from, 0x55, sizeof from);
    CHECK(recvfrom(ends[1], &byte, 1, 0, (struct sockaddr *)&from, &len) == 1);
    printf("recvfrom: length %u, family %x\n", len, from.ss_family);
    struct msghdr m = { .msg_iov = &(struct iovec){ &byte, 1 }, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from,
                        .msg_flags = 0x7777 };
    CHECK(send(ends[0], "y", 1, 0) == 1);
    CHECK(recvmsg(ends[1], &m, 0) == 1);
    printf("recvmsg: length %u, flags %x\n", m.msg_namelen, m.msg_flags);
    CHECK(sendto(ends[0], "z", 1, 0, (struct sockaddr *)&from, sizeof from) == 1);
    CHECK(recv(ends[1], &byte, 1, 0) == 1 && byte == 'z');

    /* accept into nothing, too little and enough. */
    struct sockaddr_in address, mine;
    int door = listener(&address);
    for (socklen_t room = 0; room <= 24; room += 8) {
        struct sockaddr_in got;
        memset(&got, 0x55, sizeof got);
        int client = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
        len = sizeof mine;
        CHECK(getsockname(client, (struct sockaddr *)&mine, &len) == 0);
        len = room;
        int server = accept4(door, (struct sockaddr *)&got, &len, room & 8 ? SOCK_NONBLOCK : SOCK_CLOEXEC);
        CHECK(server >= 0);
        socklen_t same = 0;
        while (same < sizeof got && ((char *)&got)[same] == ((char *)&mine)[same])
            same++;
        printf("accept with room for %u: length %u, right up to %s, %s %s\n", room, len,
               same >= (room < sizeof got ? room : (socklen_t)sizeof got) ? "that" : "less",
               fcntl(server, F_GETFL) & O_NONBLOCK ? "non-blocking" : "blocking",
               fcntl(server, F_GETFD) & FD_CLOEXEC ? "cloexec" : "kept");
        close(server);
        close(client);
    }
}

int main(void)
{
    int ends[2];
    pair(ends);
    exchange(ends, 40);
    batches(ends);
    vectors(ends);
    addresses(ends);
    exchange(ends, 40);
    puts("ok");
    return 0;
}
