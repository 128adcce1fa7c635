package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// Every Go block of README.md stands in main.go, which compiles, and every
// region marked there stands in README.md.
func TestReadme_ShowsCodeThatCompiles(t *testing.T) {
	readme, code := read(t, "../../README.md"), read(t, "main.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	regions := regexp.MustCompile(`(?s)// readme:\w+\n(.*?)\t*// readme:end`).
		FindAllStringSubmatch(code, -1)
	if len(blocks) != len(regions) || len(blocks) == 0 {
		t.Fatalf("README.md has %d Go blocks, main.go %d regions", len(blocks), len(regions))
	}
	for i := range blocks {
		if got, want := unindented(blocks[i][1]), unindented(regions[i][1]); got != want {
			t.Errorf("block %d of README.md is\n%s\nwant, as in main.go,\n%s", i+1, got, want)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// unindented takes the indentation of the first line off all.
func unindented(code string) string {
	code = strings.TrimRight(code, "\n")
	indent := code[:len(code)-len(strings.TrimLeft(code, "\t"))]
	return strings.ReplaceAll(strings.TrimPrefix(code, indent), "\n"+indent, "\n")
}

func TestReadme_ServesAndRefuses(t *testing.T) {
	router := newRouter()
	status := func(token string) int {
		r := httptest.NewRequest(http.MethodGet, "/orders/7", nil)
		r.Header.Set("Authorization", token)
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return w.Code
	}
	var got []int
	for range 21 {
		got = append(got, status("Bearer alice-token"))
	}
	if want := append(slices.Repeat([]int{200}, 20), 429); !slices.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
	if got := status("Bearer bob-token"); got != 200 {
		t.Errorf("another user: status %d, want 200", got)
	}
	if got := status(""); got != 401 {
		t.Errorf("nobody: status %d, want 401", got)
	}
}

func TestReadme_BuildsServers(t *testing.T) {
	limit := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{})),
		[]limiter.Budget{{Name: "calls", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1)}},
		limiter.Config{}))
	var call grpc.UnaryServerInterceptor
	var stream grpc.StreamServerInterceptor
	if newGRPCServer(limit, call, stream) == nil {
		t.Error("no server")
	}
	handler := newMux(limit, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var got []int
	for range 2 {
		r := httptest.NewRequest(http.MethodGet, "/orders/7", nil)
		r.Header.Set("Authorization", "Bearer alice-token")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		got = append(got, w.Code)
	}
	if want := []int{200, 429}; !slices.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
}

// Every code that a warning is logged under has its anchor in README.md, where
// the log says it is explained.
func TestReadme_ExplainsEveryWarning(t *testing.T) {
	readme := read(t, "../../README.md")
	warn := regexp.MustCompile(`(?:Warn\([^"]*|[cC]ode[^"\n]*)"([a-z0-9]+(?:-[a-z0-9]+)+)"`)
	codes := map[string]bool{}
	for _, dir := range []string{"limiter", "middleware", "grpcinterceptor", "internal/misuse"} {
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, found := range warn.FindAllStringSubmatch(read(t, file), -1) {
				codes[found[1]] = true
			}
		}
	}
	if len(codes) < 7 {
		t.Errorf("found the codes %v only", codes)
	}
	for code := range codes {
		if !strings.Contains(readme, `<a id="`+code+`"></a>`+code) {
			t.Errorf("README.md does not explain %s", code)
		}
	}
}
