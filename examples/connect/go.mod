module github.com/ration-go/ration/examples/connect

go 1.26.0

replace github.com/ration-go/ration => ../..

require (
	connectrpc.com/connect v1.21.1
	github.com/ration-go/ration v0.0.0-00010101000000-000000000000
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/felixge/httpsnoop v1.1.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
