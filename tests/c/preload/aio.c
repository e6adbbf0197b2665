/* Asynchronous reads and writes, by libc's own threads. */
#include "check.h"
#include <aio.h>

static void finish(struct aiocb *request, ssize_t expected)
{
    const struct aiocb *list[] = { request };
    while (aio_error(request) == EINPROGRESS)
        CHECK(aio_suspend(list, 1, NULL) == 0 || errno == EINTR);
    CHECK(aio_error(request) == 0);
    CHECK(aio_return(request) == expected);
}

int main(void)
{
    int ends[2];
    char in[8] = "", more[8] = "", out[8] = "written";
    pair(ends);
    exchange(ends, 40);
    struct aiocb reading = { .aio_fildes = ends[0], .aio_buf = in, .aio_nbytes = 8 };
    struct aiocb writing = { .aio_fildes = ends[1], .aio_buf = out, .aio_nbytes = 8 };
    CHECK(aio_read(&reading) == 0);
    CHECK(aio_write(&writing) == 0);
    finish(&writing, 8);
    finish(&reading, 8);
    CHECK(strcmp(in, out) == 0);

    struct aiocb both[2] = {
        { .aio_fildes = ends[0], .aio_buf = more, .aio_nbytes = 8, .aio_lio_opcode = LIO_READ },
        { .aio_fildes = ends[1], .aio_buf = out, .aio_nbytes = 8, .aio_lio_opcode = LIO_WRITE },
    };
    struct aiocb *list[] = { &both[0], NULL, &both[1] };
    CHECK(lio_listio(LIO_WAIT, list, 3, NULL) == 0);
    finish(&both[0], 8);
    finish(&both[1], 8);
    CHECK(strcmp(more, out) == 0);
    exchange(ends, 40);
    puts("ok");
    return 0;
}
