/* pthread_cancel of threads that are blocked in calls on a stream: the cleanup handlers run, the stream goes on. */
#include "rig.h"

static int fds[2];
static int epoll;
static volatile pid_t tid;
static volatile int cleaned;

static void cleanup(void *unused)
{
	(void)unused;
	cleaned++;
}

static void *in_call(void *which)
{
	char buffer[100];
	struct pollfd set = { fds[1], POLLIN, 0 };
	struct epoll_event event;
	struct iovec vector = { buffer, sizeof buffer };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	fd_set reading;

	FD_ZERO(&reading);
	FD_SET(fds[1], &reading);
	pthread_cleanup_push(cleanup, NULL);
	tid = (pid_t)syscall(SYS_gettid);
	switch ((long)which) {
	case 0: (void)!recv(fds[1], buffer, sizeof buffer, 0); break;
	case 1: (void)!read(fds[1], buffer, sizeof buffer); break;
	case 2: (void)!readv(fds[1], &vector, 1); break;
	case 3: (void)!recvmsg(fds[1], &message, 0); break;
	case 4: (void)!recvfrom(fds[1], buffer, sizeof buffer, 0, NULL, NULL); break;
	case 5: (void)!recv(fds[1], buffer, sizeof buffer, MSG_WAITALL); break;
	case 6: (void)!poll(&set, 1, -1); break;
	case 7: (void)!select(fds[1] + 1, &reading, NULL, NULL, NULL); break;
	case 8: (void)!epoll_wait(epoll, &event, 1, -1); break;
	case 9: (void)!accept(rig_listener, NULL, NULL); break;
	case 10:
		for (;;)
			if (send(fds[0], buffer, sizeof buffer, 0) < 0)
				break;
		break;
	}
	pthread_cleanup_pop(0);
	return NULL;
}

int main(void)
{
	struct epoll_event event = { .events = EPOLLIN };

	epoll = epoll_create1(0);
	for (long which = 0; which <= 10; which++) {
		pthread_t thread;
		void *result;
		char buffer[10];

		pair(fds);
		warm(fds);
		epoll_ctl(epoll, EPOLL_CTL_ADD, fds[1], &event);
		tid = 0;
		cleaned = 0;
		pthread_create(&thread, NULL, in_call, (void *)which);
		while (!tid)
			nap(1);
		asleep(tid);
		say("cancel", pthread_cancel(thread));
		pthread_join(thread, &result);
		printf("call %ld: %s, cleaned %d\n", which, result == PTHREAD_CANCELED ? "cancelled" : "returned", cleaned);
		if (which == 10) {
			/* What was taken must still arrive; how much that is, is nobody's promise. */
			ssize_t got;
			long total = 0;
			char room[4096];

			shutdown(fds[0], SHUT_WR);
			while ((got = recv(fds[1], room, sizeof room, 0)) > 0)
				total += got;
			say("end", got);
			printf("%s\n", total > 0 ? "bytes came" : "no byte came");
		} else {
			say("send", send(fds[0], "hello", 5, 0));
			say("recv", recv(fds[1], buffer, sizeof buffer, 0));
			say("send", send(fds[1], "hello", 5, 0));
			say("recv", recv(fds[0], buffer, sizeof buffer, 0));
		}
		close(fds[0]);
		close(fds[1]);
	}
	return 0;
}
