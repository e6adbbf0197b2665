/* longjmp out of a signal handler that interrupted a call, as iperf3 does: no lock stays behind. */
#include "rig.h"

static sigjmp_buf back;
static int fds[2];

static void handler(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static void after(int milliseconds)
{
	struct timeval time = { 0, milliseconds * 1000 };
	struct itimerval timer = { { 0, 0 }, time };

	setitimer(ITIMER_REAL, &timer, NULL);
}

static void check(void)
{
	char buffer[10];

	say("send", send(fds[0], "hello", 5, 0));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	say("send", send(fds[1], "hello", 5, 0));
	say("recv", recv(fds[0], buffer, sizeof buffer, 0));
}

int main(void)
{
	static char room[1 << 16];
	struct pollfd set;
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(0);
	fd_set reading;
	volatile long total = 0;
	ssize_t got;

	pair(fds);
	warm(fds);
	alarm(0);
	signal(SIGALRM, handler);
	epoll_ctl(epoll, EPOLL_CTL_ADD, fds[1], &event);
	for (volatile int round = 0; round < 3; round++) {
		if (sigsetjmp(back, 1) == 0) {
			after(20);
			say("recv", recv(fds[1], room, sizeof room, 0));
		}
		check();
		if (sigsetjmp(back, 1) == 0) {
			after(20);
			set = (struct pollfd){ fds[1], POLLIN, 0 };
			say("poll", poll(&set, 1, -1));
		}
		check();
		if (sigsetjmp(back, 1) == 0) {
			after(20);
			say("epoll_wait", epoll_wait(epoll, &event, 1, -1));
		}
		check();
		if (sigsetjmp(back, 1) == 0) {
			after(20);
			FD_ZERO(&reading);
			FD_SET(fds[1], &reading);
			say("select", select(fds[1] + 1, &reading, NULL, NULL, NULL));
		}
		check();
		if (sigsetjmp(back, 1) == 0) {
			after(20);
			say("accept", accept(rig_listener, NULL, NULL));
		}
		check();
	}
	/* A sender that does nothing else is interrupted anywhere. What it took is not known to it any more, as on TCP. */
	if (sigsetjmp(back, 1) == 0) {
		after(100);
		for (;;) {
			if (send(fds[0], room, sizeof room, 0) < 0)
				say("send", -1);
		}
	}
	alarm(30);
	signal(SIGALRM, SIG_DFL);
	shutdown(fds[0], SHUT_WR);
	while ((got = recv(fds[1], room, sizeof room, 0)) > 0)
		total += got;
	say("end", got);
	printf("%s\n", total >= (long)sizeof room ? "bytes came" : "too few bytes came");
	say("send", send(fds[1], "hello", 5, 0));
	say("recv", recv(fds[0], room, 10, 0));
	return 0;
}
