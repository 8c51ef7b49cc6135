/* SPDX-License-Identifier: BSD-2-Clause */
/* The proof that both ends of a connection know the job's key. No libc state. */
#pragma once

#include <stdint.h>

#include "protocol/message.h"

/* @side: 'S' the coordinator's proof, 'C' the client's. */
void protocol_auth_mac(const uint8_t key[PROTOCOL_KEY_SIZE], char side,
		       const uint8_t client_nonce[PROTOCOL_NONCE_SIZE],
		       const uint8_t server_nonce[PROTOCOL_NONCE_SIZE], uint8_t ret_mac[PROTOCOL_MAC_SIZE]);
