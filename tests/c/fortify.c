/* Fortified binaries call __recv_chk and its kin: the same as the plain names. */
#include "rig.h"

int main(int argc, char **argv)
{
	/* Lengths that the compiler cannot see, so that it must ask the checking functions. */
	size_t length = (size_t)argc * 10;
	char buffer[64];
	struct pollfd set[4];
	struct timespec soon = { 0, 20000000 };
	int fds[2];

	(void)argv;
	pair(fds);
	warm(fds);
	say("send", send(fds[0], "0123456789abcdefghijklmnopqrstuvwxyz", 36, 0));
	say("recv", recv(fds[1], buffer, length, 0));
	printf("%.10s\n", buffer);
	say("read", read(fds[1], buffer, length));
	printf("%.10s\n", buffer);
	say("recvfrom", recvfrom(fds[1], buffer, length, 0, NULL, NULL));
	printf("%.10s\n", buffer);
	for (int i = 0; i < 4; i++)
		set[i] = (struct pollfd){ fds[1], POLLIN | POLLOUT, 0 };
	say("poll", poll(set, argc * 3, 0));
	printf("%x %x %x %x\n", set[0].revents, set[1].revents, set[2].revents, set[3].revents);
	say("read", read(fds[1], buffer, length));
	set[0].events = POLLIN;
	say("poll", poll(set, argc, 20));
	say("ppoll", ppoll(set, argc, &soon, NULL));
	say("recv", recv(fds[1], buffer, length, MSG_DONTWAIT));
	say("send", send(fds[0], "x", 1, 0));
	say("ppoll", ppoll(set, argc, NULL, NULL));
	say("recv", recv(fds[1], buffer, length, MSG_PEEK));
	FD_SET(fds[1], &(fd_set){ 0 });
	fflush(stdout);
	/* One byte too many must still be caught. */
	if (fork() == 0) {
		close(2);
		say("overflow", recv(fds[1], buffer, (size_t)argc * 65, MSG_DONTWAIT));
		_exit(0);
	} else {
		int status;
		wait(&status);
		printf("child: signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	}
	say("close", close(fds[0]));
	say("close", close(fds[1]));
	return 0;
}
