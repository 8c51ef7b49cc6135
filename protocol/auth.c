/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * HMAC-SHA-512-256(key, side | client nonce | server nonce). Owns nothing. The side's letter keeps a proof from being
 * sent back to who made it; both nonces make it good for one connection only.
 */
#include "protocol/auth.h"

#include <sodium/crypto_auth_hmacsha512256.h>

_Static_assert(PROTOCOL_MAC_SIZE == crypto_auth_hmacsha512256_BYTES, "wire format");

void protocol_auth_mac(const uint8_t key[PROTOCOL_KEY_SIZE], char side,
		       const uint8_t client_nonce[PROTOCOL_NONCE_SIZE],
		       const uint8_t server_nonce[PROTOCOL_NONCE_SIZE], uint8_t ret_mac[PROTOCOL_MAC_SIZE])
{
	crypto_auth_hmacsha512256_state state;

	crypto_auth_hmacsha512256_init(&state, key, PROTOCOL_KEY_SIZE);
	crypto_auth_hmacsha512256_update(&state, (const unsigned char *)&side, 1);
	crypto_auth_hmacsha512256_update(&state, client_nonce, PROTOCOL_NONCE_SIZE);
	crypto_auth_hmacsha512256_update(&state, server_nonce, PROTOCOL_NONCE_SIZE);
	crypto_auth_hmacsha512256_final(&state, ret_mac);
}
