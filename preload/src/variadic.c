/* The variadic functions among the exports. Rust can declare a call to one, but not define one; each of these turns its
 * arguments into the fixed form, which Rust exports. The symbols are made in variadic.rs, which jumps here. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

int __vdprintf_chk(int fd, int flag, const char *format, va_list args);

/* As in libc, the array of arguments is on the stack: exec functions must work in a signal handler and after vfork. */
#define COUNT(args, first, last, n)                                                                                     \
    do {                                                                                                               \
        va_start(args, last);                                                                                          \
        for (n = (first) != NULL; n != 0 && va_arg(args, const char *) != NULL;)                                       \
            n++;                                                                                                       \
        va_end(args);                                                                                                  \
    } while (0)

static void fill(char **argv, const char *first, va_list *args, size_t n)
{
    argv[0] = (char *)first;
    for (size_t i = 1; i < n; i++)
        argv[i] = va_arg(*args, char *);
    argv[n] = NULL;
    if (n != 0)
        (void)va_arg(*args, char *); /* the NULL: an environment may follow */
}

int rsock_execl(const char *path, const char *first, ...)
{
    va_list args;
    size_t n;
    COUNT(args, first, first, n);
    char *argv[n + 1];
    va_start(args, first);
    fill(argv, first, &args, n);
    va_end(args);
    return execv(path, argv);
}

int rsock_execlp(const char *file, const char *first, ...)
{
    va_list args;
    size_t n;
    COUNT(args, first, first, n);
    char *argv[n + 1];
    va_start(args, first);
    fill(argv, first, &args, n);
    va_end(args);
    return execvp(file, argv);
}

int rsock_execle(const char *path, const char *first, ...)
{
    va_list args;
    size_t n;
    COUNT(args, first, first, n);
    char *argv[n + 1];
    va_start(args, first);
    fill(argv, first, &args, n);
    char **envp = va_arg(args, char **);
    va_end(args);
    return execve(path, argv, envp);
}

int rsock_dprintf(int fd, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int written = vdprintf(fd, format, args);
    va_end(args);
    return written;
}

int rsock_dprintf_chk(int fd, int flag, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int written = __vdprintf_chk(fd, flag, format, args);
    va_end(args);
    return written;
}
