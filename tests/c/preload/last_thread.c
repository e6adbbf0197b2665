/* main ends by pthread_exit: the process lives as long as the program's other threads, and not longer. */
#include "check.h"

static int ends[2];

static void *worker(void *unused)
{
    (void)unused;
    usleep(50000);
    exchange(ends, 40);
    if (write(STDOUT_FILENO, "ok\n", 3) != 3)
        _exit(1);
    return NULL;
}

int main(void)
{
    pthread_t id;
    pair(ends);
    exchange(ends, 40);
    CHECK(pthread_create(&id, NULL, worker, NULL) == 0);
    CHECK(pthread_detach(id) == 0);
    pthread_exit(NULL);
}
