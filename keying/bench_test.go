package keying_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"testing"

	"github.com/ration-go/ration/internal/lab/certtest"
	"github.com/ration-go/ration/keying"
)

// BenchmarkRequest is what finding out who calls costs.
func BenchmarkRequest(b *testing.B) {
	leaf := certtest.New(b, "Acme Clients").Issue(b, x509.Certificate{
		Subject: pkix.Name{CommonName: "alice", Organization: []string{"Acme"}}}).Leaf
	who := keying.Authenticated(keying.OrAddress(keying.Addresses{})).
		OrCertificate(keying.CertificateSubject)
	named := muxRequest("GET", "", "/items/7")
	named = named.WithContext(keying.WithPrincipal(named.Context(), alice))
	certified := muxRequest("GET", "", "/items/7")
	certified.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	for _, bb := range []struct {
		name string
		r    *http.Request
	}{
		{"caller=named", named},
		{"caller=certificate", certified},
		{"caller=address", muxRequest("GET", "", "/items/7")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = who.Request(bb.r)
			}
		})
	}
}

// BenchmarkRoute is what finding the route costs; "mux-alone" is the mux's own
// look-up, which serving the request needs anyway.
func BenchmarkRoute(b *testing.B) {
	mux := http.NewServeMux()
	for _, pattern := range patterns {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	r := muxRequest("GET", "", "/items/7")
	known := muxRequest("GET", "", "/items/7")
	known.Pattern = "GET /items/{id}"
	for _, bb := range []struct {
		name string
		find func()
	}{
		{"place=handler", func() { keying.Pattern(known) }},
		{"place=around-the-mux", func() { keying.Mux(mux)(r) }},
		{"place=mux-alone", func() { mux.Handler(r) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bb.find()
			}
		})
	}
}

func BenchmarkFold(b *testing.B) {
	f, err := keying.Workloads{Header: "X-Workload", Listed: []string{"web"}}.Folding()
	if err != nil {
		b.Fatal(err)
	}
	for _, label := range []string{"web", "invented-label-42"} {
		b.Run("label="+label, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.Fold(label)
			}
		})
	}
}
