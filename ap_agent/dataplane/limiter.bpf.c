// SPDX-License-Identifier: Apache-2.0
/* The limiter's program: finds the link of each packet of a network card, and admits or refuses it.
 *
 *   clsact ingress ─▶ from_user ┐  what a link admits gets the link's class as its priority; the next filter (`admitted`)
 *   clsact egress  ─▶ to_user   ┘  redirects that to the IFB of its direction, where HTB paces it
 *
 * Each direction of a link (a lane) has a virtual queue (virtual scheduling, ITU-T I.371) here, in front, so that nothing
 * that was admitted is dropped behind, and each fragment has the verdict and the link of its own datagram.
 * program.py has the same layouts. Linux 5.12 or newer.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define OWN_MAJOR 0x51b0u           // of our HTB roots: no operator's root takes our priorities for its classes
#define FULL 65536u                 // a factor of 1
#define COST_SHIFT 20               // of ns_per_byte
#define SLOTS 56                    // an entry of the map fits into 1 kB
#define TICK_SHIFT 27               // 134 ms: the age of a slot
#define SLOT_TICKS 112              // 15 s; identifications come again
#define UNSEEN_BYTES 140000ull      // two of the largest datagrams may come last fragment first
#define UNSEEN_NS_PER_BYTE 250000ull  // 4 kB/s: what never gets its first fragment is of no use to anybody
#define MAX_HEADERS 24
#define MAX_TAGS 4
#define SCION_BFD 203               // next header in the common header, which follows the UDP header

enum { WITH_REMOTE_PORT = 1, WITH_LOCAL_ADDRESS = 2, WITH_LOCAL_PORT = 4, KINDS = 8, KINDS_WITH_PORTS = 0xfa,
       KINDS_WITH_REMOTE_PORT = 0xaa };
enum { BLOCKED = 1, OBSERVED = 2 };                     // flags of a lane
enum { NOBODY, STRAIGHT, ADMITTED, REFUSED };           // verdicts; STRAIGHT: past the IFB
enum { FREE, OF_NOBODY, UNSEEN, ACCEPTED, DROPPED };    // states of a slot
enum { READ_ALL, READ_NOBODY, READ_ODD, READ_ON };  // ODD: no sound host sends it, and nothing tells whose it is

struct address { __u32 word[4], ifindex; };  // IPv4 as ::ffff:a.b.c.d; ifindex of link-local ones, else 0
struct key { struct address remote; __u32 local[4]; __u16 remote_port, local_port; } __attribute__((aligned(8)));

struct lane {
    __u64 ns_per_byte;   // written by user space, down to `segment`
    __u64 room_ns;       // how long the virtual queue may be
    __u64 early_ns;      // from here on a few are refused early, at most 1 in 8: TCP flows share more fairly
    __u64 most_ns;       // longer it is never: a longer one is of a limit that has risen
    __u64 beat_room_ns;  // of the bucket of heartbeats
    __u32 class_id, flags;
    __u64 rate_kbit;     // of use to user space alone, like `segment`, which names the life of these counters
    __u64 segment;       // 0: nobody's
    __u64 empty_at;      // when the virtual queue will be empty, monotonic; from here on written by this program
    __u64 beat_at;
    __u64 passed_bytes, passed_packets, refused_bytes, refused_packets;  // of an observed link both passed
    __u64 beat_bytes, beat_packets;  // among those that passed
};

/* `bytes`: of UNSEEN what passed before the first fragment; of ACCEPTED what is charged already and still to come. */
struct slot { __u32 datagram, bytes; __u16 lane, packets, tick, state; };
struct fragments { __u64 unseen_at; struct slot slots[SLOTS]; };

#define HASH(name, from, to) \
    struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 16384); __uint(map_flags, BPF_F_NO_PREALLOC); \
             __type(key, from); __type(value, to); } name SEC(".maps")
HASH(links, struct key, __u32);                       // the lane to the user; the next one is from the user
HASH(fragments, struct address, struct fragments);    // of each address that has a link
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 16384); __uint(map_flags, BPF_F_MMAPABLE);
         __type(key, __u32); __type(value, struct lane); } lanes SEC(".maps");

volatile struct {
    __u32 factor[2];   // multiplies each charge of a direction, while links share a cap of the attachment point
    __u32 unmatched;   // 1 + the lane to the users of what no link has; 0: that is not limited
    __u32 seed;        // of the slots
    __u64 known[1024]; // the bit of each address that has a link: who has none is nobody's, without a look-up
    __u32 ifb;         // interface number of the IFB to the users
    __u8 kinds;        // of keys that any address has, as bits
} settings;

struct packet {
    struct key key;  // with all that is known of it
    __u8 protocol, has_ports, is_fragment, is_first, is_beat, is_exempt;
    __u32 identification, from_user;
    __u32 bytes, packets;            // as HTB counts them
    __u32 seen_bytes, seen_packets;  // of its datagram, which passed before the first fragment
    __u32 charged;                   // bytes; with a first fragment all of its datagram, as the UDP header says
    __u32 lane, class_id;
    __u64 cost;                      // ns of its lane
    __u32 ip, ip_bytes, at, from;    // where the IP packet begins, its length, the next header; offsets are from `from`
};

#define READ_BYTES(offset, to, bytes) bpf_skb_load_bytes_relative(skb, offset, to, bytes, p->from)
#define READ(offset, to) READ_BYTES(offset, to, sizeof(*(to)))
#define COPY(to, of) __builtin_memcpy(to, of, 16)
/* Nothing is there, so that the kernel clears the memory. Without CAP_PERFMON each store to a part of the stack that is
 * not in use yet waits for all before it (5 ns, against speculative store bypass); what a helper stores does not. */
#define CLEAR(what) bpf_skb_load_bytes(skb, ~0u, &(what), sizeof(what))

#define UNROLLED _Pragma("clang loop unroll(full)")  // without CAP_PERFMON a wrong guess never ends a loop
#define ROTATED(word, bits) ((word) << (bits) | (word) >> (32 - (bits)))
#define IS_TAG(protocol) ((protocol) == bpf_htons(ETH_P_8021Q) || (protocol) == bpf_htons(ETH_P_8021AD))

/* The fast way of most packets: without a tag, of an address that has no link. */
static __always_inline int is_nobodys(struct __sk_buff *skb, __u32 from_user)
{
    int is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP), at = is_ipv4 ? (from_user ? 12 : 16) : from_user ? 8 : 24;
    __u32 word[4], bit;

    if (settings.unmatched || IS_TAG(skb->protocol))
        return 0;
    if (!is_ipv4 && skb->protocol != bpf_htons(ETH_P_IPV6))
        return 1;
    if (bpf_skb_load_bytes_relative(skb, at, word, is_ipv4 ? 4 : 16, BPF_HDR_START_NET) < 0)
        return 1;
    bit = is_ipv4 ? word[0] ^ ROTATED(bpf_htonl(0xffff), 7)
                  : word[3] ^ ROTATED(word[2], 7) ^ ROTATED(word[1], 14) ^ ROTATED(word[0], 21);
    bit = bit * 0x9e3779b1u >> 16;
    return !(settings.known[bit >> 6 & 1023] >> (bit & 63) & 1);
}

/* The protocol, and where its header begins: behind VLAN tags of id 0, which the kernel takes for none. */
static __always_inline int network_header(struct __sk_buff *skb, struct packet *p)
{
    struct { __be16 tci, protocol; } tag;
    __be16 protocol = skb->protocol;
    p->ip = 0, p->from = BPF_HDR_START_NET;
    if (skb->vlan_present && (skb->vlan_tci & 0xfff))
        return -1;  // of a VLAN, whose device has hooks of its own
    if (!IS_TAG(protocol))
        return protocol;
    p->ip = ETH_HLEN, p->from = BPF_HDR_START_MAC;
    UNROLLED for (int i = 0; i < MAX_TAGS && IS_TAG(protocol); i++, p->ip += sizeof(tag)) {
        if (READ(p->ip, &tag) < 0 || tag.tci & bpf_htons(0xfff))
            return -1;
        protocol = tag.protocol;
    }
    return IS_TAG(protocol) ? -1 : protocol;
}

/* Functions that are not static are read by the verifier once, and not on every path to them: 0.1 s instead of 2.7, and
 * without CAP_PERFMON, when it follows wrong guesses of a processor too, at all. For that, `p` may be NULL to its eyes.
 *
 * Ports, and whether it is a heartbeat. It begins at `at`. */
__noinline int read_transport(struct __sk_buff *skb, struct packet *p)
{
    struct { __u16 source, destination; __be16 length; __u8 rest[6], mark; } head;  // TCP: length, SCION: next header
    __u8 type;

    if (!p)
        return READ_NOBODY;
    __u32 at = p->at, link_layer = p->from == BPF_HDR_START_NET ? skb->len - p->ip_bytes : 0;
    if (p->is_exempt)  // neighbours and routers of this network: hops are 255 (RFC 4861), and no fragments (RFC 6980)
        p->is_exempt = p->protocol == IPPROTO_ICMPV6 && !p->is_fragment && READ(at, &type) == 0 &&
                       type >= 133 && type <= 137;
    if ((p->protocol != IPPROTO_UDP && p->protocol != IPPROTO_TCP) ||
        (READ_BYTES(at, &head, 13) < 0 && READ_BYTES(at, &head, 6) < 0))
        return p->is_fragment && p->protocol == IPPROTO_UDP ? READ_ODD : READ_ALL;
    p->has_ports = 1;
    p->key.remote_port = p->from_user ? head.source : head.destination;
    p->key.local_port = p->from_user ? head.destination : head.source;
    if (skb->gso_size) {  // each segment gets the headers again, and HTB charges for them (qdisc_pkt_len_init)
        __u32 headers = at + (link_layer <= 64 ? link_layer : ETH_HLEN);
        headers += p->protocol == IPPROTO_TCP ? (head.mark >> 4) * 4 : 8;
        p->packets = skb->gso_segs ?: skb->len > headers ? (skb->len - headers - 1) / skb->gso_size + 1 : 1;
        p->charged = p->bytes += (p->packets - 1) * headers;
    } else if (p->protocol == IPPROTO_UDP && p->is_fragment) {
        __u32 here = p->ip_bytes - (at - p->ip), all = bpf_ntohs(head.length);
        if (here && here < all && here < p->bytes)
            p->charged = all + (all + here - 1) / here * (p->bytes - here);
    } else if (p->protocol == IPPROTO_UDP) {
        p->is_beat = head.mark == SCION_BFD;
    }
    return READ_ALL;
}

__noinline int read_ipv4(struct __sk_buff *skb, struct packet *p)
{
    struct iphdr ip;
    if (!p || READ(p->ip, &ip) < 0 || ip.version != 4 || ip.ihl < 5)
        return READ_NOBODY;  // the kernel drops it
    p->key.remote.word[2] = p->key.local[2] = bpf_htonl(0xffff);
    p->key.remote.word[3] = p->from_user ? ip.saddr : ip.daddr;
    p->key.local[3] = p->from_user ? ip.daddr : ip.saddr;
    p->protocol = ip.protocol;
    p->is_fragment = (ip.frag_off & bpf_htons(0x3fff)) != 0;
    p->is_first = (ip.frag_off & bpf_htons(0x1fff)) == 0;
    p->identification = (__u32)ip.protocol << 16 | ip.id;
    p->ip_bytes = bpf_ntohs(ip.tot_len);
    p->at = p->ip + ip.ihl * 4;
    return p->is_first ? read_transport(skb, p) : READ_ALL;
}

/* What begins at `at`, an extension header or what follows them; `protocol` says which. */
__noinline int read_header(struct __sk_buff *skb, struct packet *p)
{
    struct { __u8 next, length; __be16 offset; __be32 id; } header;  // the last two of a fragment header
    __u8 kind = p ? p->protocol : 0;
    if (!p || (kind != IPPROTO_HOPOPTS && kind != IPPROTO_ROUTING && kind != IPPROTO_DSTOPTS && kind != IPPROTO_AH &&
               kind != IPPROTO_FRAGMENT))
        return read_transport(skb, p);
    if (READ(p->at, &header) < 0)
        return READ_ODD;  // RFC 8200: the first fragment has all of them
    p->at += kind == IPPROTO_FRAGMENT ? 8 : kind == IPPROTO_AH ? header.length * 4 + 8 : header.length * 8 + 8;
    p->protocol = header.next;
    if (kind == IPPROTO_FRAGMENT && header.offset & bpf_htons(0xfff9)) {  // else atomic: nothing to put together
        p->is_fragment = 1;
        p->identification = header.id;  // with the addresses; not the next header, which may differ (RFC 8200)
        if (header.offset & bpf_htons(0xfff8)) {
            p->is_first = p->is_exempt = 0;
            return READ_ALL;
        }
    }
    return READ_ON;
}

__noinline int read_ipv6(struct __sk_buff *skb, struct packet *p)
{
    struct ipv6hdr ip;
    if (!p || READ(p->ip, &ip) < 0 || ip.version != 6)
        return READ_NOBODY;
    COPY(p->key.remote.word, p->from_user ? &ip.saddr : &ip.daddr);
    COPY(p->key.local, p->from_user ? &ip.daddr : &ip.saddr);
    if ((p->key.remote.word[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000))
        p->key.remote.ifindex = skb->ifindex;
    p->is_first = 1;
    p->is_exempt = ip.hop_limit == 255;
    p->ip_bytes = bpf_ntohs(ip.payload_len) + sizeof(ip);
    p->at = p->ip + sizeof(ip);
    p->protocol = ip.nexthdr;
    UNROLLED for (int i = 0; i <= MAX_HEADERS; i++) {
        int read = read_header(skb, p);
        if (read != READ_ON)
            return read;
    }
    return READ_ODD;
}

/* Sets the packet's lane to that of the link whose key says most about it. */
__noinline int find(struct __sk_buff *skb, struct packet *p)
{
    __u32 kinds = settings.kinds;
    struct key key;
    if (!p)
        return 0;
    if (!p->has_ports || p->protocol != IPPROTO_UDP)  // a test may be TCP
        kinds &= p->has_ports ? ~KINDS_WITH_REMOTE_PORT : ~KINDS_WITH_PORTS;
    UNROLLED for (__u32 order = 0x02461357, i = 0; i < KINDS; i++, order >>= 4) {
        __u32 kind = order & 7, *lane;
        if (!(kinds >> kind & 1))
            continue;
        CLEAR(key);
        key.remote = p->key.remote;
        if (kind & WITH_LOCAL_ADDRESS)
            COPY(key.local, p->key.local);
        key.remote_port = kind & WITH_REMOTE_PORT ? p->key.remote_port : 0;
        key.local_port = kind & WITH_LOCAL_PORT ? p->key.local_port : 0;
        lane = bpf_map_lookup_elem(&links, &key);
        if (lane) {
            p->lane = *lane + p->from_user;
            return 1;
        }
    }
    return 0;
}

#define ADD(counter, value) __sync_fetch_and_add(&(counter), value)

/* How long a queue is that will be empty at `at`; one longer than `most` begins anew at `instead`. */
static __always_inline __u64 left(__u64 *at, __u64 now, __u64 most, __u64 instead)
{
    if (*at > now + most)
        *at = now + instead;
    return *at > now ? *at - now : 0;
}

static __always_inline void charge(__u64 *at, __u64 now, __u64 rest, __u64 most, __u64 cost)
{
    if (cost > most - rest)
        cost = most - rest;
    if (rest)
        ADD(*at, cost);  // another processor may be at it
    else
        *at = now + cost;
}

/* Whether the lane has room for the packet; `datagram`: what was decided about the datagram whose fragment it is. */
__noinline int admit_to(struct lane *lane, struct packet *p, int datagram)
{
    __u64 now, rest;
    if (!lane || !p)
        return REFUSED;
    p->class_id = lane->class_id;
    p->cost = (p->charged * lane->ns_per_byte >> COST_SHIFT) * settings.factor[p->from_user & 1] / FULL;
    if (p->seen_packets) {
        ADD(lane->passed_bytes, p->seen_bytes);
        ADD(lane->passed_packets, p->seen_packets);
    }
    if (lane->flags & BLOCKED || datagram == DROPPED)
        goto refused;
    now = bpf_ktime_get_ns();
    rest = left(&lane->empty_at, now, lane->most_ns, lane->early_ns);
    if (p->is_beat) {
        __u64 beats = left(&lane->beat_at, now, lane->beat_room_ns, 0);
        p->is_beat = beats + p->cost <= lane->beat_room_ns;
        if (p->is_beat)
            charge(&lane->beat_at, now, beats, lane->beat_room_ns, p->cost);
    }
    if (!p->is_beat && datagram != ACCEPTED && rest > lane->early_ns) {
        __u64 chance = bpf_get_prandom_u32();
        if (rest > lane->room_ns || chance < ((rest - lane->early_ns) << 29) / (lane->room_ns - lane->early_ns + 1))
            goto refused;
    }
    charge(&lane->empty_at, now, rest, lane->most_ns, p->cost);
    ADD(lane->passed_bytes, p->bytes);
    ADD(lane->passed_packets, p->packets);
    if (p->is_beat) {
        ADD(lane->beat_bytes, p->bytes);
        ADD(lane->beat_packets, p->packets);
    }
    return p->is_beat || lane->flags & OBSERVED ? STRAIGHT : ADMITTED;
refused:
    ADD(lane->refused_bytes, p->bytes);
    ADD(lane->refused_packets, p->packets);
    return lane->flags & OBSERVED ? STRAIGHT : REFUSED;
}

static __always_inline int admit(struct packet *p, int datagram)
{
    struct lane *lane = bpf_map_lookup_elem(&lanes, &p->lane);
    return lane ? admit_to(lane, p, datagram) : REFUSED;
}

static __always_inline __u64 mixed(__u64 a, __u32 b, __u32 c)
{
    a = (a ^ ((__u64)b << 32 | c)) * 0x9e3779b97f4a7c15ull;
    return a ^ a >> 29;
}

/* Only the first fragment has ports. Those that come before it pass within a bucket of their address, and are charged to
 * the link with the first one; where that is refused nothing can be put together. */
static __noinline int decide_fragment(struct __sk_buff *skb, struct packet *p, struct fragments *here)
{
    __u64 now = bpf_ktime_get_ns(), datagram = mixed(settings.seed, p->key.local[0], p->key.local[1]);
    int state, verdict;

    datagram = mixed(mixed(datagram, p->key.local[2], p->key.local[3]), p->from_user, p->identification);
    struct slot *slot = &here->slots[(datagram >> 32) * SLOTS >> 32];
    __u16 tick = now >> TICK_SHIFT;
    state = slot->datagram == (__u32)datagram && (__u16)(tick - slot->tick) < SLOT_TICKS ? slot->state : FREE;

    if (!p->is_first && state == OF_NOBODY)
        return NOBODY;
    if (!p->is_first && (state == ACCEPTED || state == DROPPED)) {
        p->lane = slot->lane;
        p->charged = p->bytes > slot->bytes ? p->bytes - slot->bytes : 0;
        slot->bytes -= p->bytes - p->charged;
        return admit(p, state);
    }
    if (state != UNSEEN)
        slot->bytes = slot->packets = 0;
    slot->datagram = datagram, slot->tick = tick;
    if (!p->is_first && settings.kinds & KINDS_WITH_PORTS) {
        __u64 most = UNSEEN_BYTES * UNSEEN_NS_PER_BYTE, cost = p->bytes * UNSEEN_NS_PER_BYTE;
        __u64 rest = left(&here->unseen_at, now, most, most);
        slot->state = UNSEEN;
        if (rest + cost > most)
            return REFUSED;
        charge(&here->unseen_at, now, rest, most, cost);
        slot->bytes += p->bytes, slot->packets++;
        return STRAIGHT;
    }
    p->seen_bytes = slot->bytes, p->seen_packets = slot->packets;
    ADD(here->unseen_at, -(__u64)p->seen_bytes * UNSEEN_NS_PER_BYTE);
    slot->state = OF_NOBODY;
    if (!find(skb, p))
        return NOBODY;
    if (p->charged < p->bytes + p->seen_bytes)
        p->charged = p->bytes + p->seen_bytes;
    verdict = admit(p, FREE);
    slot->bytes = p->charged - p->bytes - p->seen_bytes, slot->lane = p->lane;
    slot->state = verdict == REFUSED ? DROPPED : ACCEPTED;
    return verdict;
}

static __always_inline int decide(struct __sk_buff *skb, struct packet *p)
{
    int protocol = network_header(skb, p), read = READ_NOBODY, verdict = NOBODY;
    struct fragments *here = 0;
    __u16 port;

    if (protocol == bpf_htons(ETH_P_IP))
        read = read_ipv4(skb, p);
    else if (protocol == bpf_htons(ETH_P_IPV6))
        read = read_ipv6(skb, p);
    else
        p->is_exempt = protocol == bpf_htons(ETH_P_ARP) || protocol < 0;
    if (read == READ_ODD || p->is_fragment)
        here = bpf_map_lookup_elem(&fragments, &p->key.remote);
    else if (read == READ_ALL && find(skb, p))
        return admit(p, FREE);
    if (here)
        verdict = read == READ_ODD ? REFUSED : decide_fragment(skb, p, here);
    if (verdict != NOBODY || !settings.unmatched || (p->is_exempt && read != READ_ODD))
        return verdict;
    p->lane = settings.unmatched - 1 + p->from_user;
    port = bpf_ntohs(p->key.local_port);  // DHCP has what heartbeats have in a link: a host must not lose its address
    p->is_beat = p->protocol == IPPROTO_UDP && (port == 67 || port == 68 || port == 546 || port == 547);
    return admit(p, FREE);
}

static __always_inline int limit(struct __sk_buff *skb, __u32 from_user)
{
    struct packet p;
    int verdict;

    if (!from_user && skb->ingress_ifindex && skb->ingress_ifindex == settings.ifb) {  // it comes back from there
        if (skb->priority >> 16 == OWN_MAJOR)
            skb->priority = skb->cb[4];
        return TC_ACT_UNSPEC;
    }
    if (skb->priority >> 16 == OWN_MAJOR)
        skb->priority = 0;  // it came from a user, and goes on to somebody
    if (is_nobodys(skb, from_user))
        return TC_ACT_UNSPEC;
    CLEAR(p);
    p.from_user = from_user, p.packets = 1;
    p.bytes = p.charged = skb->len;
    verdict = decide(skb, &p);
    if (verdict == ADMITTED) {
        skb->cb[4] = skb->priority;
        skb->priority = p.class_id;
    }
    return verdict == REFUSED ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("tc") int to_user(struct __sk_buff *skb) { return limit(skb, 0); }
SEC("tc") int from_user(struct __sk_buff *skb) { return limit(skb, 1); }

/* Not direct action: says whether the packet matches, and the filter's own action redirects it to the IFB. */
SEC("tc") int admitted(struct __sk_buff *skb) { return skb->priority >> 16 == OWN_MAJOR ? -1 : 0; }

char LICENSE[] SEC("license") = "Apache-2.0";
