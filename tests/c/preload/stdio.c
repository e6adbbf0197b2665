/* stdio on a stream: libc reads and writes past everybody's symbols. */
#include "check.h"

int main(void)
{
    int ends[2];
    char line[128];
    pair(ends);
    exchange(ends, 40);

    /* Formatted output straight to the descriptor. */
    CHECK(dprintf(ends[0], "%s %d %.2f %c\n", "formatted", 42, 2.5, 'x') > 0);
    CHECK(recv(ends[1], line, sizeof line, 0) > 0);
    fputs(line, stdout);

    FILE *in = fdopen(ends[1], "r"), *out = fdopen(ends[0], "w");
    CHECK(in && out);
    CHECK(fileno(in) == ends[1] && fileno(out) == ends[0]);
    for (int i = 0; i < 100; i++) {
        CHECK(fprintf(out, "line %d\n", i) > 0 && fflush(out) == 0);
        CHECK(fgets(line, sizeof line, in));
        int got = -1;
        CHECK(sscanf(line, "line %d", &got) == 1 && got == i);
    }
    CHECK(fputs("the last\n", out) > 0);
    CHECK(fclose(out) == 0); /* flushes, then FIN */
    CHECK(fgets(line, sizeof line, in));
    CHECK(!fgets(line, sizeof line, in) && feof(in));
    CHECK(fclose(in) == 0);

    /* The numbers are free, and mean other things now. */
    int fd = open("/dev/zero", O_RDONLY);
    CHECK(fd == ends[0] || fd == ends[1] || fd == 3);
    CHECK(read(fd, line, sizeof line) == sizeof line && line[0] == 0);
    CHECK(close(fd) == 0);
    pair(ends);
    exchange(ends, 40);
    puts("ok");
    return 0;
}
