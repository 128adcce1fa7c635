package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// The program of README.md is main.go, and its other Go blocks stand in regions of the
// code here, which compiles.
func TestReadme_ShowsCodeThatCompiles(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(
		read(t, "../../README.md"), -1)
	regions := regexp.MustCompile(`(?s)// readme:\w+\n(.*?)\t*// readme:end`).
		FindAllStringSubmatch(read(t, "grpc.go"), -1)
	if len(blocks) != 1+len(regions) || len(regions) == 0 {
		t.Fatalf("README.md has %d Go blocks, the code %d regions beside main.go", len(blocks), len(regions))
	}
	if _, program, _ := strings.Cut(read(t, "main.go"), "\n"); program != blocks[0][1] {
		t.Errorf("the program of README.md is\n%s\nwant, as in main.go,\n%s", blocks[0][1], program)
	}
	for i, region := range regions {
		if got, want := unindented(blocks[i+1][1]), unindented(region[1]); got != want {
			t.Errorf("block %d of README.md is\n%s\nwant, as in the code,\n%s", i+2, got, want)
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
	for range 101 {
		got = append(got, status("Bearer alice-token"))
	}
	if want := append(slices.Repeat([]int{200}, 100), 429); !slices.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
	if got := status("Bearer bob-token"); got != 200 {
		t.Errorf("another user: status %d, want 200", got)
	}
	if got := status(""); got != 401 {
		t.Errorf("nobody: status %d, want 401", got)
	}
}

func TestReadme_CallsAreCharged(t *testing.T) {
	limit := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{})),
		[]limiter.Budget{{Name: "calls", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1)}},
		limiter.Config{}))
	server, err := newGRPCServer(limit)
	if err != nil {
		t.Fatal(err)
	}
	testpb.RegisterTestServiceServer(server, testpb.UnimplementedTestServiceServer{})
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:bufconn",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := testpb.NewTestServiceClient(conn)
	with := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
	}
	call := func(token string) codes.Code {
		_, err := client.EmptyCall(with(token), &testpb.Empty{})
		return status.Code(err)
	}
	stream := func(token string) codes.Code {
		s, err := client.FullDuplexCall(with(token))
		if err == nil {
			_, err = s.Recv()
		}
		return status.Code(err)
	}
	got := []codes.Code{call("Bearer alice-token"), call("Bearer alice-token"),
		stream("Bearer bob-token"), stream("Bearer bob-token"), call("")}
	want := []codes.Code{codes.Unimplemented, codes.ResourceExhausted, // by the handler; refused
		codes.Unimplemented, codes.ResourceExhausted, codes.Unauthenticated}
	if !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
}

// Every code that a warning is logged under has its paragraph in the comment of the
// package that logs it, and README.md has the section that the log links to.
func TestReadme_ExplainsEveryWarning(t *testing.T) {
	if !strings.Contains(read(t, "../../README.md"), "\n## Warnings\n") {
		t.Error("README.md has no section Warnings")
	}
	byCallers := warningCodes(t, "keying", `return "`) // which adapters log
	for pkg, least := range map[string]int{"limiter": 4, "middleware": 9, "grpcinterceptor": 4} {
		found := warningCodes(t, pkg, `[wW]arn\([^"]*"|\.First\("`)
		if len(found) < least {
			t.Errorf("package %s: found the codes %v only", pkg, found)
		}
		if pkg != "limiter" {
			found = append(found, byCallers...)
		}
		doc := read(t, "../../"+pkg+"/doc.go")
		for _, code := range found {
			if !regexp.MustCompile(`(?m)^//\s+(- )?` + code + `\b`).MatchString(doc) {
				t.Errorf("the comment of package %s does not explain %s", pkg, code)
			}
		}
	}
}

// warningCodes returns the codes of warnings in a package, which follow the expression.
func warningCodes(t *testing.T, pkg, before string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("../../" + pkg + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`(?:` + before + `)([a-z0-9]+(?:-[a-z0-9]+)+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range code.FindAllStringSubmatch(read(t, file), -1) {
			found = append(found, match[1])
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
