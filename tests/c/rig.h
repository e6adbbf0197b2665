/* What the C programs share: a connected pair in one process, warming it up, and saying what happened.
 *
 * A program prints one line a call; the test compares what it prints plain with what it prints preloaded. Everything
 * that could block for ever ends by alarm(). */
#ifndef RIG_H
#define RIG_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline void say(const char *what, long result)
{
	if (result < 0)
		printf("%s = %ld %s\n", what, result, strerrorname_np(errno));
	else
		printf("%s = %ld\n", what, result);
	fflush(stdout);
}

static inline void fail(const char *what)
{
	printf("FAILED: %s: %s\n", what, strerror(errno));
	exit(99);
}

static inline void nap(int milliseconds)
{
	struct timespec time = { milliseconds / 1000, (milliseconds % 1000) * 1000000L };
	nanosleep(&time, NULL);
}

static int rig_listener = -1;

/* A connection within this process. */
static inline void pair(int fds[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof at;

	alarm(60);
	if (rig_listener < 0) {
		rig_listener = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(rig_listener, (struct sockaddr *)&at, sizeof at) || listen(rig_listener, 8))
			fail("listen");
	}
	getsockname(rig_listener, (struct sockaddr *)&at, &length);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fds[0], (struct sockaddr *)&at, sizeof at))
		fail("connect");
	fds[1] = accept(rig_listener, NULL, NULL);
	if (fds[1] < 0)
		fail("accept");
}

static inline void all(int from, int to, int length)
{
	char message[256] = { 0 };
	int done = 0;

	if (send(from, message, length, 0) != length)
		fail("send while warming up");
	while (done < length) {
		ssize_t got = recv(to, message, length - done, 0);
		if (got <= 0)
			fail("recv while warming up");
		done += got;
	}
}

/* Messages both ways until both directions are on lanes, if the library is there and LANES=1 says that it must be so. */
static inline void warm(int fds[2])
{
	int (*carrier)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rsock_stream_carrier");
	const char *wanted = getenv("LANES");
	int must = wanted && *wanted == '1';

	for (int round = 0; round < 1000; round++) {
		all(fds[0], fds[1], 64);
		all(fds[1], fds[0], 64);
		if (carrier && carrier(fds[0]) == 3 && carrier(fds[1]) == 3)
			return;
		if (!must && round >= (carrier ? 30 : 3))
			return;
		nap(round < 10 ? 1 : 5);
	}
	printf("FAILED: not on lanes: %d %d\n", carrier ? carrier(fds[0]) : -2, carrier ? carrier(fds[1]) : -2);
	exit(98);
}

/* Until another thread sleeps in the kernel. */
static inline void asleep(pid_t tid)
{
	char path[64], line[512];
	int in_a_row = 0;

	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	for (int i = 0; i < 3000 && in_a_row < 5; i++) {
		FILE *file = fopen(path, "r");
		char *state;

		if (!file)
			return;
		if (!fgets(line, sizeof line, file))
			line[0] = 0;
		fclose(file);
		state = strrchr(line, ')');
		in_a_row = state && state[2] == 'S' ? in_a_row + 1 : 0;
		nap(2);
	}
}
#endif
