/* SPDX-License-Identifier: BSD-2-Clause */
/* A program without a loader: what launch has to refuse. */
int main(void)
{
	return 0;
}
