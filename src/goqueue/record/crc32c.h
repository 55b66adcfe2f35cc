/* CRC32C (Castagnoli, reflected polynomial 0x82F63B78), by the CPU's instruction where there is one.
 *
 * crc32c_setup() chooses once, at import. Both forms stay callable so that tests can compare them on one machine.
 * gq_crc_record() is the checksum of a record: every byte except bytes 4..7, which hold the checksum itself.
 */
#ifndef GOQUEUE_CRC32C_H
#define GOQUEUE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#include <wmmintrin.h>
#define GQ_CRC_X86 1
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define GQ_CRC_ARM 1
#endif

static uint32_t gq_crc_table[8][256];

static void gq_crc_make_tables(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
        gq_crc_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int slice = 1; slice < 8; slice++) {
            uint32_t crc = gq_crc_table[slice - 1][n];
            gq_crc_table[slice][n] = (crc >> 8) ^ gq_crc_table[0][crc & 0xFF];
        }
}

/* Slicing by eight; bytes are combined by shifts, so byte order of the machine does not matter. */
static uint32_t gq_crc_soft(uint32_t crc, const uint8_t *p, size_t length) {
    while (length >= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = gq_crc_table[7][low & 0xFF] ^ gq_crc_table[6][(low >> 8) & 0xFF] ^ gq_crc_table[5][(low >> 16) & 0xFF] ^
              gq_crc_table[4][low >> 24] ^ gq_crc_table[3][p[4]] ^ gq_crc_table[2][p[5]] ^ gq_crc_table[1][p[6]] ^
              gq_crc_table[0][p[7]];
        p += 8;
        length -= 8;
    }
    while (length--)
        crc = (crc >> 8) ^ gq_crc_table[0][(crc ^ *p++) & 0xFF];
    return crc;
}

static uint32_t gq_crc_record_soft(const uint8_t *record, size_t size) {
    return ~gq_crc_soft(gq_crc_soft(0xFFFFFFFFu, record, 4), record + 8, size - 8);
}

#if defined(GQ_CRC_X86)
#define GQ_CRC_TARGET __attribute__((target("sse4.2")))
#define GQ_CRC_64(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define GQ_CRC_32(crc, word) _mm_crc32_u32((crc), (word))
#define GQ_CRC_8(crc, byte) _mm_crc32_u8((crc), (byte))
#elif defined(GQ_CRC_ARM)
#define GQ_CRC_TARGET __attribute__((target("+crc")))
#define GQ_CRC_64(crc, word) __crc32cd((crc), (word))
#define GQ_CRC_32(crc, word) __crc32cw((crc), (word))
#define GQ_CRC_8(crc, byte) __crc32cb((crc), (byte))
#endif

#if defined(GQ_CRC_TARGET)
static inline GQ_CRC_TARGET uint32_t gq_crc_hard(uint32_t crc, const uint8_t *p, size_t length) {
    uint64_t word;
    uint32_t half;
    while (length >= 8) {
        memcpy(&word, p, 8);
        crc = GQ_CRC_64(crc, word);
        p += 8;
        length -= 8;
    }
    if (length & 4) {
        memcpy(&half, p, 4);
        crc = GQ_CRC_32(crc, half);
        p += 4;
    }
    length &= 3;
    while (length--)
        crc = GQ_CRC_8(crc, *p++);
    return crc;
}

static GQ_CRC_TARGET uint32_t gq_crc_hard_call(uint32_t crc, const uint8_t *p, size_t length) {
    return gq_crc_hard(crc, p, length);
}

static GQ_CRC_TARGET uint32_t gq_crc_record_hard(const uint8_t *record, size_t size) {
    uint32_t head;
    memcpy(&head, record, 4);
    return ~gq_crc_hard(GQ_CRC_32(0xFFFFFFFFu, head), record + 8, size - 8);
}
#endif

static int gq_crc_hardware = 0;

/* A predictable branch and a direct call: cheaper than a call through a pointer, once per record. */
static inline uint32_t gq_crc(uint32_t crc, const uint8_t *p, size_t length) {
#if defined(GQ_CRC_TARGET)
    if (gq_crc_hardware)
        return gq_crc_hard_call(crc, p, length);
#endif
    return gq_crc_soft(crc, p, length);
}

static inline uint32_t gq_crc_record(const uint8_t *record, size_t size) {
#if defined(GQ_CRC_TARGET)
    if (gq_crc_hardware)
        return gq_crc_record_hard(record, size);
#endif
    return gq_crc_record_soft(record, size);
}

static int gq_crc_hardware_available(void) {
#if defined(GQ_CRC_X86)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(GQ_CRC_ARM)
    return (getauxval(AT_HWCAP) & (1ul << 7)) != 0;
#else
    return 0;
#endif
}

/* Restamping changes bytes 8..23 of a record whose checksum has just been verified. CRC is linear: the new checksum is
 * the old one xor the CRC, from zero, of the difference of those bytes followed by as many zero bytes as follow them.
 * Running over n zero bytes is multiplying by x^8n modulo the polynomial, and a carry-less product reduced by the CRC
 * instruction, gq_crc_multiply, is a * b * x^33. So factors are kept as a * x^-33, and gq_crc_power[i] is x^(8 * 2^i) in
 * that form. Cost: the same for a record of any size, and a factor once per run of records of one size.
 */
typedef struct {
    size_t length;
    uint32_t factor;
} gq_crc_shift;

static int gq_crc_can_restamp = 0;

#if defined(GQ_CRC_X86)
#define GQ_CRC_POWERS 25 /* covers the largest record, under 2^25 bytes */
static uint32_t gq_crc_power[GQ_CRC_POWERS];

static inline __attribute__((target("sse4.2,pclmul"))) uint32_t gq_crc_multiply(uint32_t a, uint32_t b) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

static void gq_crc_make_powers(void) {
    uint32_t value = 0x80000000u; /* x^0, bits reflected */
    for (int step = 0; step < 33 - 8; step++)
        value = value & 0x80000000u ? ((value ^ 0x82F63B78u) << 1) | 1u : value << 1; /* divide by x */
    for (int i = 0; i < GQ_CRC_POWERS; i++) {
        gq_crc_power[i] = value;
        value = gq_crc_multiply(value, value);
    }
}

static __attribute__((target("sse4.2,pclmul"))) uint32_t gq_crc_restamp(uint32_t crc, const uint8_t *before,
                                                                         const uint8_t *after, size_t following,
                                                                         gq_crc_shift *shift) {
    uint64_t was[2], is[2];
    memcpy(was, before, 16);
    memcpy(is, after, 16);
    uint32_t change = (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, was[0] ^ is[0]), was[1] ^ is[1]);
    if (shift->length != following) {
        uint32_t factor = 0;
        for (int i = 0; i < GQ_CRC_POWERS && following >> i; i++)
            if (following >> i & 1)
                factor = factor ? gq_crc_multiply(factor, gq_crc_power[i]) : gq_crc_power[i];
        shift->length = following;
        shift->factor = factor;
    }
    return crc ^ gq_crc_multiply(change, shift->factor);
}
#else
static uint32_t gq_crc_restamp(uint32_t crc, const uint8_t *before, const uint8_t *after, size_t following,
                               gq_crc_shift *shift) {
    (void)before, (void)after, (void)following, (void)shift;
    return crc;
}
#endif

/* Returns 1 when the hardware form is in use. */
static int gq_crc_setup(int allow_hardware) {
    gq_crc_make_tables();
    gq_crc_hardware = gq_crc_can_restamp = 0;
#if defined(GQ_CRC_TARGET)
    gq_crc_hardware = allow_hardware && gq_crc_hardware_available();
#endif
#if defined(GQ_CRC_X86)
    if (gq_crc_hardware && __builtin_cpu_supports("pclmul")) {
        gq_crc_make_powers();
        gq_crc_can_restamp = 1;
    }
#endif
    return gq_crc_hardware;
}

/* Big-endian loads and stores through memcpy: no alignment or aliasing assumptions. */
static inline uint16_t gq_load16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t gq_load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}
static inline uint64_t gq_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}
static inline void gq_store16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}
static inline void gq_store32(uint8_t *p, uint32_t v) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    memcpy(p, &v, 4);
}
static inline void gq_store64(uint8_t *p, uint64_t v) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    memcpy(p, &v, 8);
}

#endif
