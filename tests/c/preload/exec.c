/* Every way to start another program passes arguments and environment on (with LD_PRELOAD in it), after streams were used. */
#include "check.h"
#include <sys/syscall.h>

extern char **environ;

static const char script[] = "echo $0 $# $1 $([ \"$LD_PRELOAD\" = \"$2\" ] && echo same preload) $CHOSEN";

int main(void)
{
    char *preload = getenv("LD_PRELOAD");
    char entry[4096];
    if (preload == NULL)
        preload = "";
    snprintf(entry, sizeof entry, "LD_PRELOAD=%s", preload);
    char *argv[] = { "name", "-c", (char *)script, "zero", "one", preload, NULL };
    char *few[] = { "true", NULL };
    char *envp[] = { entry, "CHOSEN=env", "PATH=/bin:/usr/bin", NULL };
    int ends[2];
    int shell = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    CHECK(shell >= 0);
    CHECK(setenv("CHOSEN", "inherited", 1) == 0);
    pair(ends);
    exchange(ends, 40);

    for (int way = 0; way < 14; way++) {
        fflush(stdout);
        pid_t child = way == 13 ? _Fork() : fork();
        if (child == 0) {
            switch (way) {
            case 0: execve("/bin/sh", argv, envp); break;
            case 1: execv("/bin/sh", argv); break;
            case 2: execvp("sh", argv); break;
            case 3: execvpe("sh", argv, envp); break;
            case 4: execl("/bin/sh", "name", "-c", script, "zero", "one", preload, NULL); break;
            case 5: execlp("sh", "name", "-c", script, "zero", "one", preload, NULL); break;
            case 6: execle("/bin/sh", "name", "-c", script, "zero", "one", preload, NULL, envp); break;
            case 7: execveat(AT_FDCWD, "/bin/sh", argv, envp, 0); break;
            case 8: fexecve(shell, argv, envp); break;
            case 9: syscall(SYS_execve, "/bin/sh", argv, envp); break;
            case 10: execl("/bin/true", "true", NULL); break;
            case 11: execv("/bin/true", few); break;
            case 12:
                CHECK(execl("/nonexistent", "x", NULL) == -1 && errno == ENOENT);
                CHECK(execle("/nonexistent", "x", "y", NULL, envp) == -1 && errno == ENOENT);
                CHECK(execlp("nonexistent-program", "x", NULL) == -1 && errno == ENOENT);
                exchange(ends, 1);
                _exit(0);
            case 13: execle("/bin/sh", "name", "-c", script, "zero", "1", preload, "3", "4", "5", "6", "7", "8", "9", NULL, envp);
            }
            _exit(1);
        }
        reap(child);
        exchange(ends, 40);
    }
    return 0;
}
