/* dup2 onto numbers that the library's own descriptors have: they are the program's, and the streams go on. */
#include "rig.h"
#include <sys/resource.h>

static void check(int fds[2], const char *after)
{
	char buffer[10];
	struct pollfd set = { fds[1], POLLIN, 0 };

	printf("%s\n", after);
	say("send", send(fds[0], "hello", 5, 0));
	say("poll", poll(&set, 1, 5000));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	say("send", send(fds[1], "hello", 5, 0));
	say("recv", recv(fds[0], buffer, sizeof buffer, 0));
}

int main(void)
{
	int fds[2], more[2], wrong = 0;
	struct rlimit limit;
	int null = open("/dev/null", O_RDWR);
	char buffer[10];

	/* The library goes by the limit: below it there must be numbers to find. */
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = 1024;
	setrlimit(RLIMIT_NOFILE, &limit);
	pair(fds);
	warm(fds);
	check(fds, "before");
	for (int n = 20; n < 1000; n++) {
		if (fcntl(n, F_GETFD) < 0)
			continue;
		wrong += dup2(null, n) != n;
		wrong += write(n, "x", 1) != 1 || read(n, buffer, 1) != 0;
	}
	printf("wrong %d\n", wrong);
	check(fds, "after dup2 onto every number in use");
	pair(more);
	warm(more);
	check(more, "a new connection");
	for (int n = 20; n < 1000; n++)
		if (fcntl(n, F_GETFD) >= 0 && read(n, buffer, 1) == 0)
			close(n);
	check(fds, "at the end");
	check(more, "at the end");
	close(fds[0]);
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	return 0;
}
