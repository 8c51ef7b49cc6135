/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzer of the protocol's decoder. An input is a message's type (2 bytes) and its payload. What the decoder takes is read as the receivers
 * read it, so that a sanitizer sees a bound that the check has missed; names that were taken are encoded again and must be the same.
 */
#include "protocol/decode.h"
#include "tests/fuzz/fuzz.h"

static void fuzz_names(const uint8_t *payload, size_t size)
{
	uint8_t again[sizeof(struct msg_name) + PROTOCOL_NAME_KEY_MAX + PROTOCOL_NAME_VALUE_MAX + 8];
	struct decode_names it;
	struct decode_name n;

	if (decode_names_begin(&it, payload, size) < 0)
		return;
	while (decode_names_next(&it, &n) > 0) {
		fuzz_touch(n.key, n.key_length);
		fuzz_touch(n.value, n.value_length);
		if (encode_name_size(n.key_length, n.value_length) > sizeof(again))
			abort();
		encode_name(again, n.kind, n.key, n.key_length, n.value, n.value_length);
		if (memcmp(again + sizeof(struct msg_name), n.key, (size_t)n.key_length + n.value_length))
			abort();
	}
}

static void fuzz_done(const uint8_t *payload, size_t size)
{
	struct decode_done d;

	if (decode_phase_done(payload, size, &d) < 0)
		return;
	fuzz_touch(d.text, d.head.text_length);
	fuzz_touch(d.children, d.head.children * sizeof(uint32_t));
}

static void fuzz_result(const uint8_t *payload)
{
	struct msg_checkpoint_result r;

	memcpy(&r, payload, sizeof(r));
	fuzz_touch(payload + sizeof(r), (size_t)r.path_length + r.text_length);
}

static void fuzz_register(const uint8_t *payload, size_t size)
{
	struct msg_register m;

	decode_register(payload, size, &m);
	fuzz_touch(m.comm, strlen(m.comm));
	fuzz_touch(m.host, strlen(m.host));
	fuzz_touch(m.exe, strlen(m.exe));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msg_header h;
	uint8_t *payload;
	uint16_t type;

	if (size >= sizeof(h))
		(void)decode_header(data, &h);
	if (size < sizeof(type))
		return 0;
	memcpy(&type, data, sizeof(type));
	size -= sizeof(type);
	payload = fuzz_copy(data + sizeof(type), size);
	if (decode_message(type, payload, size) == 0) {
		fuzz_names(payload, type == MSG_NAMES || type == MSG_NAMES_REPLY ? size : 0);
		fuzz_done(payload, type == MSG_PHASE_DONE ? size : 0);
		if (type == MSG_CHECKPOINT_RESULT)
			fuzz_result(payload);
		if (type == MSG_REGISTER)
			fuzz_register(payload, size);
	}
	free(payload);
	return 0;
}
