/* What a child of vfork or posix_spawn does to descriptors is not done to the parent's, though they share memory. */
#include "check.h"
#include <spawn.h>

extern char **environ;

int main(void)
{
    int ends[2];
    char *const argv[] = { "true", NULL };
    pair(ends);
    exchange(ends, 40);
    for (int i = 0; i < 4; i++) {
        pid_t child = vfork();
        if (child == 0) {
            dup2(ends[0], ends[1]);
            for (int fd = 3; fd < 64; fd++)
                close(fd);
            if (i & 1)
                execv("/bin/true", argv);
            _exit(0);
        }
        reap(child);
        exchange(ends, 40);
    }
    pid_t child;
    CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ) == 0);
    reap(child);
    exchange(ends, 40);

    /* A stream as standard output of another program. */
    posix_spawn_file_actions_t actions;
    char *const echo[] = { "echo", "through the stream", NULL };
    char got[64];
    size_t n = 0;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, ends[0], STDOUT_FILENO) == 0);
    CHECK(posix_spawn(&child, "/bin/echo", &actions, NULL, echo, environ) == 0);
    reap(child);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    for (ssize_t more; (more = read(ends[1], got + n, sizeof got - n)) > 0; n += (size_t)more)
        ;
    CHECK(fwrite(got, 1, n, stdout) == n);
    return 0;
}
