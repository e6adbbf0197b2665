/* Calls that do not go through exported names: syscall() and a descriptor used by both ways. The stream must be found
 * whole on TCP, never half of it on a lane. */
#include "rig.h"

int main(void)
{
	int fds[2];
	char buffer[100];
	struct pollfd set;

	pair(fds);
	warm(fds);
	say("syscall write", syscall(SYS_write, fds[0], "hello", 5));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	say("send", send(fds[1], "hello", 5, 0));
	say("syscall read", syscall(SYS_read, fds[0], buffer, sizeof buffer));
	for (int i = 0; i < 20; i++) {
		all(fds[0], fds[1], 100);
		all(fds[1], fds[0], 100);
	}
	say("syscall sendto", syscall(SYS_sendto, fds[1], "again", 5, 0, NULL, 0));
	set = (struct pollfd){ fds[0], POLLIN, 0 };
	say("syscall ppoll", syscall(SYS_ppoll, &set, 1, NULL, NULL, 8));
	say("syscall recvfrom", syscall(SYS_recvfrom, fds[0], buffer, sizeof buffer, 0, NULL, NULL));
	say("send", send(fds[0], "0123456789", 10, 0));
	set = (struct pollfd){ fds[1], POLLIN, 0 };
	say("syscall ppoll", syscall(SYS_ppoll, &set, 1, NULL, NULL, 8));
	say("syscall read", syscall(SYS_read, fds[1], buffer, 4));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	say("syscall close", syscall(SYS_close, fds[0]));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	say("close", close(fds[1]));
	pair(fds);
	say("send", send(fds[0], "fresh", 5, 0));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	return 0;
}
