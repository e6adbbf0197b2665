/* A new epoll instance for each wait, as some libraries do: more of them than there is room for registrations at once. */
#include "rig.h"

int main(void)
{
	int fds[2], wrong = 0;
	struct epoll_event event = { .events = EPOLLIN };

	pair(fds);
	warm(fds);
	send(fds[0], "hello", 5, 0);
	for (int i = 0; i < 270000; i++) {
		int instance = epoll_create1(0);
		wrong += epoll_ctl(instance, EPOLL_CTL_ADD, fds[1], &event) != 0;
		if (i % 1000 == 0)
			wrong += epoll_wait(instance, &event, 1, 5000) != 1;
		close(instance);
	}
	printf("wrong %d\n", wrong);
	return 0;
}
