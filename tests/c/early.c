/* A library whose constructor uses sockets, fork, epoll and fcntl, before or after ours has run. Built twice: as the
 * library (-DLIBRARY) and as the program that is linked with it. */
#include "rig.h"

#ifdef LIBRARY
__attribute__((constructor)) static void early(void)
{
	int fds[2], status, epoll;
	char buffer[10];
	struct epoll_event event = { .events = EPOLLIN };
	struct iovec vector = { buffer, sizeof buffer };

	pair(fds);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	say("early epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, fds[1], &event));
	say("early send", send(fds[0], "hello", 5, 0));
	say("early epoll_wait", epoll_wait(epoll, &event, 1, 5000));
	say("early readv", readv(fds[1], &vector, 1));
	say("early fcntl", fcntl(fds[1], F_SETFL, O_NONBLOCK));
	say("early read", read(fds[1], buffer, sizeof buffer));
	fflush(stdout);
	if (fork() == 0)
		_exit(0);
	wait(&status);
	say("early child", status);
	close(fds[0]);
	close(fds[1]);
	close(epoll);
	close(rig_listener);
}
#else
int main(void)
{
	int fds[2];
	char buffer[10];

	pair(fds);
	warm(fds);
	say("send", send(fds[0], "hello", 5, 0));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	return 0;
}
#endif
