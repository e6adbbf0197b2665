/* pthread_cancel in every blocking call: the thread ends there, C's cleanup handlers and the destructors of the frames
 * between run, and the stream is as it was. */
#include "check.h"
#include <semaphore.h>

static int ends[2], door, queue, pipes[2];
static char space[1 << 16];
static sem_t about_to_block;
static int cleaned, destroyed;

static void by_read(void) { read(ends[0], space, 1); }
static void by_recv(void) { recv(ends[0], space, 1, 0); }
static void by_peek(void) { recv(ends[0], space, 1, MSG_PEEK); }
static void by_recvfrom(void) { recvfrom(ends[0], space, 1, 0, NULL, NULL); }
static void by_readv(void) { readv(ends[0], &(struct iovec){ space, 1 }, 1); }
static void by_preadv2(void) { preadv2(ends[0], &(struct iovec){ space, 1 }, 1, -1, 0); }
static void by_recvmsg(void)
{
    struct msghdr m = { .msg_iov = &(struct iovec){ space, 1 }, .msg_iovlen = 1 };
    recvmsg(ends[0], &m, 0);
}
static void by_recvmmsg(void)
{
    struct mmsghdr m = { .msg_hdr = { .msg_iov = &(struct iovec){ space, 1 }, .msg_iovlen = 1 } };
    recvmmsg(ends[0], &m, 1, 0, NULL);
}
static void by_splice(void) { splice(ends[0], NULL, pipes[1], NULL, 1, 0); }
static void by_accept(void) { accept(door, NULL, NULL); }
static void by_accept4(void)
{
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    accept4(door, (struct sockaddr *)&address, &len, SOCK_CLOEXEC);
}
static void by_poll(void) { poll(&(struct pollfd){ .fd = ends[0], .events = POLLIN }, 1, -1); }
static void by_ppoll(void) { ppoll(&(struct pollfd){ .fd = ends[0], .events = POLLIN }, 1, NULL, NULL); }
static void by_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    select(ends[0] + 1, &set, NULL, NULL, NULL);
}
static void by_pselect(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    pselect(ends[0] + 1, &set, NULL, NULL, &(struct timespec){ 100, 0 }, NULL);
}
static void by_epoll_wait(void) { epoll_wait(queue, &(struct epoll_event){ 0 }, 1, -1); }
static void by_epoll_pwait(void) { epoll_pwait(queue, &(struct epoll_event){ 0 }, 1, 100000, NULL); }
static void by_epoll_pwait2(void)
{
    epoll_pwait2(queue, &(struct epoll_event){ 0 }, 1, &(struct timespec){ 100, 1 }, NULL);
}
static void by_pipe(void) { read(pipes[0], space, 1); }
/* These fill the stream first. */
static void by_send(void) { for (;;) send(ends[1], space, sizeof space, 0); }
static void by_write(void) { for (;;) write(ends[1], space, sizeof space); }

static const struct {
    const char *name;
    void (*block)(void);
} ways[] = {
#define WAY(name) { #name, by_##name }
    WAY(read), WAY(recv), WAY(peek), WAY(recvfrom), WAY(readv), WAY(preadv2), WAY(recvmsg), WAY(recvmmsg), WAY(splice),
    WAY(accept), WAY(accept4), WAY(poll), WAY(ppoll), WAY(select), WAY(pselect), WAY(epoll_wait), WAY(epoll_pwait),
    WAY(epoll_pwait2), WAY(pipe), WAY(send), WAY(write),
};

static void clean(void *unused) { (void)unused; cleaned++; }
static void destroy(int *unused) { (void)unused; destroyed++; }

static void *thread(void *way)
{
    pthread_cleanup_push(clean, NULL);
    __attribute__((cleanup(destroy))) int frame = 0;
    sem_post(&about_to_block);
    (*(void (*const *)(void))way)();
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 40;
    struct sockaddr_in address;
    CHECK(sem_init(&about_to_block, 0, 0) == 0);
    door = listener(&address);
    CHECK(pipe(pipes) == 0);
    pair(ends);
    exchange(ends, rounds);
    CHECK((queue = epoll_create1(0)) >= 0);
    CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){ .events = EPOLLIN }) == 0);

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pthread_t id;
        void *how;
        cleaned = destroyed = 0;
        CHECK(pthread_create(&id, NULL, thread, (void *)&ways[i].block) == 0);
        CHECK(sem_wait(&about_to_block) == 0);
        usleep(i % 3 * 20000); /* just before, or while it blocks */
        CHECK(pthread_cancel(id) == 0);
        CHECK(pthread_join(id, &how) == 0);
        if (how != PTHREAD_CANCELED || cleaned != 1 || destroyed != 1) {
            printf("%s: %scancelled, cleaned up %d, destroyed %d\n", ways[i].name, how == PTHREAD_CANCELED ? "" : "not ",
                   cleaned, destroyed);
            return 1;
        }
        if (ways[i].block != by_send && ways[i].block != by_write)
            exchange(ends, rounds);
    }
    puts("ok");
    return 0;
}
