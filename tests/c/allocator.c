/* An allocator that itself calls hooked functions, as jemalloc's and tcmalloc's start-up does: no recursion, no deadlock. */
#include "rig.h"

static char arena[64 << 20];
static size_t used;
static long inside;

static void *get(size_t size)
{
	char buffer[8];
	int fd;
	size_t at;

	if (__atomic_add_fetch(&inside, 1, __ATOMIC_RELAXED) == 1) {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		(void)!read(fd, buffer, sizeof buffer);
		(void)!write(fd, buffer, sizeof buffer);
		close(fd);
	}
	__atomic_sub_fetch(&inside, 1, __ATOMIC_RELAXED);
	at = __atomic_fetch_add(&used, (size + 31) & ~(size_t)15, __ATOMIC_RELAXED);
	if (at + size + 16 > sizeof arena)
		abort();
	*(size_t *)(arena + at) = size;
	return arena + at + 16;
}

void *malloc(size_t size) { return get(size); }
void free(void *at) { (void)at; }
void *calloc(size_t count, size_t size) { return get(count * size); }
void *realloc(void *old, size_t size)
{
	void *at = get(size);
	if (old) {
		size_t before = *(size_t *)((char *)old - 16);
		memcpy(at, old, before < size ? before : size);
	}
	return at;
}
void *memalign(size_t alignment, size_t size)
{
	return (void *)(((size_t)get(size + alignment) + alignment) & ~(alignment - 1));
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **at, size_t alignment, size_t size)
{
	*at = memalign(alignment, size);
	return 0;
}

static void *talk(void *unused)
{
	int fds[2];
	char buffer[10];

	(void)unused;
	pair(fds);
	warm(fds);
	for (int i = 0; i < 100; i++) {
		free(malloc(100));
		all(fds[0], fds[1], 100);
		all(fds[1], fds[0], 100);
	}
	say("send", send(fds[0], "hello", 5, 0));
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	close(fds[0]);
	say("recv", recv(fds[1], buffer, sizeof buffer, 0));
	close(fds[1]);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	int status;

	talk(NULL);
	pthread_create(&thread, NULL, talk, NULL);
	pthread_join(thread, NULL);
	fflush(stdout);
	if (fork() == 0) {
		talk(NULL);
		fflush(stdout);
		_exit(0);
	}
	wait(&status);
	printf("child %d\n", status);
	return 0;
}
