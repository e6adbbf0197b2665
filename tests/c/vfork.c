/* A child made by vfork runs in its parent's memory: what it closes and duplicates is its own, the streams are the
 * parent's. */
#include "rig.h"

static void check(int fds[2], const char *after)
{
	char buffer[10];

	printf("%s\n", after);
	say("send", send(fds[0], "hello", 5, 0));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	say("send", send(fds[1], "hello", 5, 0));
	say("recv", recv(fds[0], buffer, sizeof buffer, 0));
	fflush(stdout);
}

int main(void)
{
	int fds[2], status;
	pid_t child;
	struct pollfd set;

	pair(fds);
	warm(fds);
	check(fds, "before");
	child = vfork();
	if (child == 0) {
		close(fds[0]);
		close(fds[1]);
		_exit(3);
	}
	waitpid(child, &status, 0);
	printf("exit %d\n", WEXITSTATUS(status));
	check(fds, "after a child that closes");
	child = vfork();
	if (child == 0) {
		dup2(fds[0], fds[1]);
		dup2(2, fds[0]);
		_exit(4);
	}
	waitpid(child, &status, 0);
	printf("exit %d\n", WEXITSTATUS(status));
	check(fds, "after a child that duplicates");
	child = vfork();
	if (child == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(5);
	}
	waitpid(child, &status, 0);
	printf("exit %d\n", WEXITSTATUS(status));
	check(fds, "after a child that executes");
	child = vfork();
	if (child == 0) {
		close_range(3, 900, 0);
		execl("/bin/true", "true", (char *)NULL);
		_exit(5);
	}
	waitpid(child, &status, 0);
	check(fds, "after a child that closes everything");
	child = vfork();
	if (child == 0) {
		dup2(fds[0], 0);
		dup2(fds[0], 1);
		execl("/bin/sh", "sh", "-c", "read line; echo \"you said $line\"", (char *)NULL);
		_exit(5);
	}
	say("send", send(fds[1], "hello\n", 6, 0));
	waitpid(child, &status, 0);
	printf("exit %d\n", WEXITSTATUS(status));
	char buffer[100] = { 0 };
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	printf("%s", buffer);
	check(fds, "after a child that talks");
	pair(fds);
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	fcntl(fds[1], F_SETFD, FD_CLOEXEC);
	warm(fds);
	child = vfork();
	if (child == 0) {
		dup2(fds[0], 1);
		execl("/bin/echo", "echo", "as subprocess does", (char *)NULL);
		_exit(5);
	}
	waitpid(child, &status, 0);
	printf("exit %d\n", WEXITSTATUS(status));
	memset(buffer, 0, sizeof buffer);
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	printf("%s", buffer);
	check(fds, "after a child whose output is the stream");
	printf("system %d\n", system("exit 6") >> 8);
	FILE *command = popen("echo from popen", "r");
	printf("%s", fgets(buffer, sizeof buffer, command) ? buffer : "nothing\n");
	printf("pclose %d\n", pclose(command));
	check(fds, "after system and popen");
	close(fds[0]);
	set = (struct pollfd){ fds[1], POLLIN | POLLRDHUP, 0 };
	say("poll", poll(&set, 1, 5000));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	return 0;
}
