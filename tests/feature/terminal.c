/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An editor's terminal: no lines, no echo, no signals of keys, control characters and a speed of its own. It is so on the new one, too.
 */
#include "feature.h"

#include <termios.h>

static struct termios wanted;

static void set(void)
{
	CHECK(isatty(0) && tcgetattr(0, &wanted) == 0);
	wanted.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
	wanted.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
	wanted.c_cc[VMIN] = 3;
	wanted.c_cc[VTIME] = 7;
	wanted.c_cc[VINTR] = 'q';
	CHECK(cfsetspeed(&wanted, B9600) == 0 && tcsetattr(0, TCSAFLUSH, &wanted) == 0);
	CHECK(tcgetattr(0, &wanted) == 0 && wanted.c_cc[VMIN] == 3);
}

static void check(void)
{
	struct termios t;

	CHECK(tcgetattr(0, &t) == 0);
	CHECK(t.c_iflag == wanted.c_iflag && t.c_oflag == wanted.c_oflag && t.c_cflag == wanted.c_cflag && t.c_lflag == wanted.c_lflag);
	CHECK(memcmp(t.c_cc, wanted.c_cc, sizeof(t.c_cc)) == 0);
	CHECK(cfgetispeed(&t) == B9600 && cfgetospeed(&t) == B9600);
}

int main(void)
{
	set();
	feature_ready();
	do {
		feature_work();
		check();
	} while (feature_step());
	printf("the terminal is as it was\n");
	return 0;
}
