/* main ends by pthread_exit while another thread talks, and destructors of thread-specific data and of libraries use
 * sockets: the process ends when the last thread does, with its status. */
#include "rig.h"

static int fds[2];
static pthread_key_t key;

static void destructor(void *value)
{
	char buffer[10];

	(void)value;
	say("send in a destructor", send(fds[0], "later", 5, 0));
	say("recv in a destructor", recv(fds[1], buffer, sizeof buffer, 0));
}

static void at_exit(void)
{
	char buffer[10];

	say("send at exit", send(fds[0], "exit", 4, 0));
	say("recv at exit", recv(fds[1], buffer, sizeof buffer, 0));
	say("close at exit", close(fds[0]));
	say("recv at exit", recv(fds[1], buffer, sizeof buffer, 0));
}

static void *talk(void *unused)
{
	char buffer[10];

	(void)unused;
	pthread_setspecific(key, &key);
	nap(50);
	say("send", send(fds[0], "hello", 5, 0));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	return NULL;
}

int main(void)
{
	pthread_t thread;

	pair(fds);
	warm(fds);
	atexit(at_exit);
	pthread_key_create(&key, destructor);
	pthread_create(&thread, NULL, talk, NULL);
	pthread_detach(thread);
	pthread_exit(NULL);
}
