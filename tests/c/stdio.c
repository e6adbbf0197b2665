/* stdio on a socket: fdopen, fprintf, fgets, getline, fclose, fileno, dprintf. glibc's own calls do not go through
 * exported names, so that these must find the stream whole. */
#include "rig.h"

int main(void)
{
	int fds[2], copy;
	char line[100];
	char *long_line = NULL;
	size_t room = 0;
	FILE *in, *out, *both;

	pair(fds);
	warm(fds);
	copy = dup(fds[1]);
	in = fdopen(fds[1], "r");
	out = fdopen(copy, "w");
	printf("fileno %s\n", fileno(in) == fds[1] && fileno(out) == copy ? "right" : "WRONG");
	say("send", send(fds[0], "one\ntwo\nthree\n", 14, 0));
	printf("fgets %s", fgets(line, sizeof line, in) ? line : "nothing\n");
	printf("fgets %s", fgets(line, sizeof line, in) ? line : "nothing\n");
	say("getline", getline(&long_line, &room, in));
	printf("%s", long_line);
	say("fprintf", fprintf(out, "hello %d %s\n", 42, "world"));
	say("fflush", fflush(out));
	say("recv", recv(fds[0], line, sizeof line, 0));
	say("fputs", fputs("unflushed", out) >= 0);
	say("fclose", fclose(out));
	say("recv", recv(fds[0], line, sizeof line, 0));
	say("dprintf", dprintf(fileno(in), "number %d\n", 7));
	say("recv", recv(fds[0], line, sizeof line, 0));
	for (int i = 0; i < 5000; i++)
		(void)!send(fds[0], "abcdefghi\n", 10, 0);
	shutdown(fds[0], SHUT_WR);
	long lines = 0, bytes = 0;
	while (fgets(line, sizeof line, in)) {
		lines++;
		bytes += (long)strlen(line);
	}
	printf("%ld lines, %ld bytes, end %d, error %d\n", lines, bytes, feof(in) != 0, ferror(in) != 0);
	say("fclose", fclose(in));
	say("fcntl", fcntl(fds[1], 1));
	say("recv", recv(fds[0], line, sizeof line, 0));
	close(fds[0]);

	pair(fds);
	warm(fds);
	both = fdopen(fds[0], "r+");
	setvbuf(both, NULL, _IONBF, 0);
	say("fwrite", (long)fwrite("0123456789", 1, 10, both));
	say("recv", recv(fds[1], line, sizeof line, 0));
	say("send", send(fds[1], "abcde", 5, 0));
	say("fread", (long)fread(line, 1, 5, both));
	say("fgetc after shutdown", (shutdown(fds[1], SHUT_WR), fgetc(both)) == EOF);
	say("fclose", fclose(both));
	say("recv", recv(fds[1], line, sizeof line, 0));
	free(long_line);
	return 0;
}
