package middleware

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ration-go/ration/internal/rpcstatus"
)

// protocol is how a client reads refusals.
type protocol uint8

const (
	plainHTTP protocol = iota
	grpcCall
	grpcWeb
	grpcWebText
	connectUnary
	connectStream
)

// protocolOf returns the protocol of a request, whatever its HTTP version is. A request
// that only looks like a call, such as any JSON without Connect's header, is plain HTTP.
func protocolOf(r *http.Request) protocol {
	switch r.Method {
	case http.MethodPost:
		return protocolOfPost(r)
	case http.MethodGet:
		if isConnectGet(r.URL.RawQuery) {
			return connectUnary
		}
	}
	return plainHTTP
}

func protocolOfPost(r *http.Request) protocol {
	types := r.Header["Content-Type"]
	if len(types) != 1 {
		return plainHTTP
	}
	base, codec, ok := cutCodec(mediaType(types[0]))
	if !ok {
		return plainHTTP
	}
	switch {
	case strings.EqualFold(base, "application/grpc"):
		return grpcCall
	case strings.EqualFold(base, "application/grpc-web"):
		return grpcWeb
	case strings.EqualFold(base, "application/grpc-web-text"):
		return grpcWebText
	case strings.EqualFold(base, "application/connect"):
		if codec != "" {
			return connectStream
		}
		return plainHTTP
	}
	const application = "application/"
	version := r.Header["Connect-Protocol-Version"]
	if len(version) == 1 && version[0] == "1" && len(base) > len(application) &&
		strings.EqualFold(base[:len(application)], application) &&
		!strings.EqualFold(base, "application/x-www-form-urlencoded") {
		return connectUnary
	}
	return plainHTTP
}

// isConnectGet reports whether a query is that of a unary call of Connect. It does not
// parse the rest, which would make the refusal of a long query several hundred times slower.
func isConnectGet(query string) bool {
	if version, _ := parameter(query, "connect="); version != "v1" {
		return false
	}
	encoding, _ := parameter(query, "encoding=")
	_, ok := parameter(query, "message=")
	return encoding != "" && ok
}

// parameter returns the first value in a query for a name, which ends in "=".
func parameter(query, name string) (value string, ok bool) {
	for at := 0; ; {
		i := strings.Index(query[at:], name)
		if i < 0 {
			return "", false
		}
		start := at + i
		at = start + len(name)
		if start == 0 || query[start-1] == '&' {
			value, _, _ = strings.Cut(query[at:], "&")
			return value, true
		}
	}
}

// mediaType returns a content type without its parameters.
func mediaType(contentType string) string {
	base, _, _ := strings.Cut(contentType, ";")
	return strings.TrimRight(base, " \t")
}

// maxMediaType is longer than any content type of an RPC. Answers repeat that of the
// request.
const maxMediaType = 64

// cutCodec cuts a media type at its plus sign. It is false for one that no RPC has.
func cutCodec(mediaType string) (base, codec string, ok bool) {
	for i := range len(mediaType) {
		c := mediaType[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("/+-._", c) < 0 {
			return "", "", false
		}
	}
	base, codec, cut := strings.Cut(mediaType, "+")
	return base, codec, len(mediaType) <= maxMediaType && !(cut && codec == "")
}

// maxPushback is the longest wait after which gRPC clients are told to retry.
const maxPushback = 30 * time.Second

// patience returns how long the client waits for a retry.
func (p protocol) patience(r *http.Request) rpcstatus.Patience {
	if p != grpcCall && p != grpcWeb && p != grpcWebText {
		return rpcstatus.Unlimited
	}
	patience := rpcstatus.Patience{Longest: maxPushback, Left: rpcstatus.NoDeadline}
	if timeout, ok := grpcTimeout(r.Header.Get("Grpc-Timeout")); ok {
		patience.Left = timeout
	}
	return patience
}

// writeRPC writes a refusal in the client's own protocol.
func (m *Middleware) writeRPC(w http.ResponseWriter, r *http.Request, f *refusal) {
	h, details := w.Header(), m.details.Details(f.rpc.Reason)
	if f.protocol != connectUnary {
		f.status = http.StatusOK // and so states no challenge
	}
	contentType := "application/json" // with a parameter, clients read another error
	if f.protocol != connectUnary {
		contentType = mediaType(r.Header.Get("Content-Type"))
	}
	if f.protocol == grpcCall {
		m.writeGRPC(h, r, f, details)
		h.Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
		return
	}
	m.writeFields(h, f)
	h.Set("Content-Type", contentType)
	w.WriteHeader(f.status)
	// A write fails if the client has disconnected.
	switch f.protocol {
	case connectUnary:
		_, _ = w.Write(f.rpc.AppendConnect(make([]byte, 0, 512), details))
	case connectStream:
		_, _ = w.Write(endOfStream(f, details))
	default:
		_, _ = w.Write(f.trailers(r, details))
	}
}

// writeGRPC writes the one frame of headers ("Trailers-Only") that answers a gRPC call.
// Clients retry only after such an answer.
func (m *Middleware) writeGRPC(
	h http.Header, r *http.Request, f *refusal, details *rpcstatus.Details,
) {
	removeInherited(h)
	removeState(h) // these are trailers, in which the fields are not allowed
	delete(h, "Trailer")
	h.Set("Cache-Control", "no-store")
	for name, value := range f.grpcStatus(r, details) {
		h.Set(name, value)
	}
}

// grpcStatus calls yield with the fields of a gRPC status, as http.Header spells them.
func (f *refusal) grpcStatus(
	r *http.Request, details *rpcstatus.Details,
) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		_ = yield("Grpc-Status", decimal(int64(f.rpc.Code))) &&
			yield("Grpc-Message", f.rpc.Message()) &&
			yield("Grpc-Status-Details-Bin",
				base64.RawStdEncoding.EncodeToString(f.rpc.Encode(details)))
		if pushback := f.rpc.Pushback(f.protocol.patience(r)); pushback != "" {
			yield("Grpc-Retry-Pushback-Ms", pushback)
		}
	}
}

// The flags of frames.
const (
	trailersFrame    = 0x80 // of gRPC-Web
	endOfStreamFrame = 0x02 // of Connect
)

// trailers returns the body that answers a gRPC-Web call: one frame, since pages of other
// origins cannot read a status in headers unless those are exposed.
func (f *refusal) trailers(r *http.Request, details *rpcstatus.Details) []byte {
	b := make([]byte, 5, 512)
	b[0] = trailersFrame
	for name, value := range f.grpcStatus(r, details) {
		b = append(b, strings.ToLower(name)+": "+value+"\r\n"...)
	}
	setLength(b)
	if f.protocol == grpcWebText {
		return base64.StdEncoding.AppendEncode(nil, b)
	}
	return b
}

// endOfStream returns the body that answers a stream of Connect.
func endOfStream(f *refusal, details *rpcstatus.Details) []byte {
	b := append(make([]byte, 5, 512), `{"error":`...)
	b[0] = endOfStreamFrame
	b = append(f.rpc.AppendConnect(b, details), '}')
	setLength(b)
	return b
}

// setLength sets the length in the prefix of a frame.
func setLength(frame []byte) {
	binary.BigEndian.PutUint32(frame[1:5], uint32(len(frame)-5))
}

var grpcUnits = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

// grpcTimeout parses the timeout of a call: up to 8 digits and a unit. It is false
// for a timeout that is not valid or that no Duration can hold.
func grpcTimeout(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	unit, known := grpcUnits[s[len(s)-1]]
	if err != nil || !known || n > uint64(math.MaxInt64/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
